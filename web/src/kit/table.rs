//! A table on the page: a click on a head sorts it, it is copied or saved as it is sorted, and a bounded number of lines is on
//! screen.

use leptos::attr::any_attribute::{AnyAttribute, IntoAnyAttribute};
use leptos::attr::custom::custom_attribute;
use leptos::prelude::*;

use super::Sheet;
use super::cell::{Cell, Column, Line, Lines};
use super::pager::{Pager, rows_of_page};
use crate::browser;

/// Lines on screen at most, where a table does not say.
const PAGE: usize = 200;
/// How long a button says what it did, in milliseconds.
const SAID: u32 = 2_000;

/// Which lines of a table are on screen, and in which order: it may be kept while the table is not.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// The column, and whether the largest is first; as they come where it is none.
    pub by: RwSignal<Option<(usize, bool)>>,
    /// The page, from 0.
    pub page: RwSignal<usize>,
}

impl Default for Order {
    fn default() -> Order {
        Order { by: RwSignal::new(None), page: RwSignal::new(0) }
    }
}

/// Numbers of lines, in order.
fn shown_lines(lines: Signal<Lines>, order: Order) -> Memo<Vec<usize>> {
    Memo::new(move |_| lines.with(|lines| lines.sorted(order.by.get())))
}

/// A table.
#[component]
pub fn Table(
    /// What it is of: its name for who does not see it, and its file's.
    name: &'static str,
    /// Its columns.
    #[prop(into)]
    columns: Signal<Vec<Column>>,
    /// Its lines.
    #[prop(into)]
    lines: Signal<Lines>,
    /// What stands over it.
    #[prop(optional, into)]
    caption: Option<Signal<String>>,
    /// Test hook.
    #[prop(optional)]
    hook: &'static str,
    /// Other attributes that tests look for.
    #[prop(optional)]
    marks: Vec<(&'static str, Signal<String>)>,
    /// Of the table's look.
    #[prop(optional)]
    class: &'static str,
    /// Whether it scrolls in a box of bounded height.
    #[prop(optional)]
    tall: bool,
    /// Lines on screen at most.
    #[prop(default = PAGE)]
    page: usize,
    /// What the lines are, in the plural.
    #[prop(default = "lines")]
    what: &'static str,
    /// Kept by the view, if it is.
    #[prop(default = Order::default())]
    order: Order,
    /// Its lines in that order, where the view has them.
    #[prop(optional)]
    shown: Option<Memo<Vec<usize>>>,
    /// What is saved and copied in place of the lines.
    #[prop(optional)]
    file: Option<Callback<Sheet, Sheet>>,
) -> impl IntoView {
    // Written once for order and rows.
    let lines = Signal::from(Memo::new_with_compare(move |_| lines.get(), |_, _| true));
    let shown = shown.unwrap_or_else(|| shown_lines(lines, order));
    let count = Signal::derive(move || shown.with(Vec::len));
    let write = move |mut sheet: Sheet| match file {
        Some(file) => untrack(|| file.run(sheet)).text(),
        None => {
            let (columns, lines) = (columns.get_untracked(), lines.get_untracked());
            shown.with_untracked(|shown| lines.write(&columns, shown, &mut sheet));
            sheet.text()
        }
    };
    let save = move |_| {
        let file = format!("{}.csv", browser::file_stem(&name.to_lowercase()));
        browser::download(&file, "text/csv", &write(Sheet::csv()));
    };
    let said = RwSignal::new("Copy");
    let copy = move |_| {
        let text = write(Sheet::pasted());
        leptos::task::spawn_local(async move {
            let done = browser::copy(text).await.is_ok();
            // None of it once the table is closed.
            let _ = said.try_set(if done { "Copied" } else { "Not allowed here" });
            browser::rest(SAID).await;
            let _ = said.try_set("Copy");
        });
    };
    let head = move || {
        let head = |(place, column): (usize, Column)| head(place, column, order);
        columns.get().into_iter().enumerate().map(head).collect_view()
    };
    let body = move || {
        let (columns, lines) = (columns.get(), lines.get());
        shown.with(|shown| {
            let on_screen = &shown[rows_of_page(order.page.get(), shown.len(), page)];
            on_screen.iter().map(|&number| row(lines.line(number), &columns)).collect_view()
        })
    };
    let foot = move || {
        let foot = lines.with(|lines| lines.foot.clone())?;
        Some(view! { <tfoot>{row(foot, &columns.get())}</tfoot> })
    };
    let marks = marks.into_iter().map(|(name, value)| custom_attribute(name, value).into_any_attr());
    let marks: Vec<AnyAttribute> = marks.collect();
    view! {
        <div class="row table-tools">
            <Pager page=order.page rows=count size=page what=what/>
            <button class="quiet" aria-label=format!("Copy: {name}") on:click=copy>{said}</button>
            <button class="quiet" aria-label=format!("CSV: {name}") on:click=save>"CSV"</button>
        </div>
        <div class="table-box" class:tall=tall tabindex="0" role="region" aria-label=name>
            <table class=class data-testid=(!hook.is_empty()).then_some(hook) {..marks}>
                {caption.map(|caption| view! { <caption>{caption}</caption> })}
                <thead><tr>{head}</tr></thead>
                <tbody>{body}</tbody>
                {foot}
            </table>
        </div>
    }
}

/// The head of a column: a click sorts by it, a second one turns the order round, a third one takes it back.
fn head(place: usize, column: Column, order: Order) -> AnyView {
    let Column { head, about, class, of_buttons, sorts } = column;
    if of_buttons {
        return view! { <th scope="col" class=class><span class="visually-hidden">{head}</span></th> }
            .into_any();
    }
    let about = (!about.is_empty()).then_some(about);
    if !sorts {
        return view! { <th scope="col" class=class title=about>{head}</th> }.into_any();
    }
    let sorted = move || match order.by.get() {
        Some((by, falling)) if by == place => Some(if falling { "descending" } else { "ascending" }),
        _ => None,
    };
    let arrow = move || match sorted() {
        Some("ascending") => "\u{2191}",
        Some(_) => "\u{2193}",
        None => "",
    };
    let turn = move |_| {
        order.by.update(|by| {
            *by = match *by {
                Some((column, false)) if column == place => Some((place, true)),
                Some((column, true)) if column == place => None,
                _ => Some((place, false)),
            }
        });
        order.page.set(0);
    };
    view! {
        <th scope="col" class=class aria-sort=sorted>
            <button class="sort" title=about on:click=turn>{head}<span aria-hidden="true">{arrow}</span></button>
        </th>
    }
    .into_any()
}

fn row(line: Line, columns: &[Column]) -> AnyView {
    let Line { cells, is_heading, marks, click, current } = line;
    let marks = marks.into_iter().map(|(name, value)| custom_attribute(name, value).into_any_attr());
    let marks: Vec<AnyAttribute> = marks.collect();
    let mut place = 0;
    let cells: Vec<AnyView> = cells
        .into_iter()
        .map(|one| {
            let class = columns.get(place).map_or("", |column| column.class);
            place += one.span;
            cell(one, class, is_heading)
        })
        .collect();
    let choosable = click.is_some();
    let current = move || current.is_some_and(|current| current.get()).then_some("true");
    view! {
        // A click on a button in it reaches the row.
        <tr class:choosable=choosable class:part=is_heading aria-current=current on:click=move |_| if let Some(click) = &click { click() } {..marks}>
            {cells}
        </tr>
    }
    .into_any()
}

fn cell(cell: Cell, class: &'static str, is_heading: bool) -> AnyView {
    let Cell { text, shows, is_head, span, class: own, .. } = cell;
    let class = if own.is_empty() { class } else { own };
    let span = (span > 1).then(|| span.to_string());
    let inside = match shows {
        Some(shows) => shows(),
        None => text.into_any(),
    };
    if is_head {
        let scope = if is_heading { "rowgroup" } else { "row" };
        view! { <th scope=scope class=class colspan=span>{inside}</th> }.into_any()
    } else {
        view! { <td class=class colspan=span>{inside}</td> }.into_any()
    }
}
