//! A table on the page: a click on a head sorts it, it is copied or saved as it is sorted, and a bounded number of lines is on
//! screen.

use leptos::prelude::*;

use super::Sheet;
use super::cell::{Cell, Column, Line, Lines, Parts};
use super::pager::{Pager, rows_of_page};
use crate::browser;

/// Lines on screen at most, where a table does not say.
pub const ROWS: usize = 200;
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

impl Order {
    /// As lines come, from the first.
    pub fn new() -> Order {
        Order { by: RwSignal::new(None), page: RwSignal::new(0) }
    }
}

/// A table that is to be shown.
pub struct Table(Box<Shown>);

/// What it is.
struct Shown {
    name: &'static str,
    hook: &'static str,
    class: &'static str,
    caption: Option<Signal<String>>,
    tall: bool,
    page: usize,
    what: &'static str,
    order: Order,
    places: Option<Memo<Vec<usize>>>,
    file: Option<Callback<Sheet, Sheet>>,
}

impl Table {
    /// Its name, for who does not see it and for its file; the test hook, if it has one.
    pub fn new(name: &'static str, hook: &'static str) -> Table {
        Table(Box::new(Shown {
            name,
            hook,
            class: "",
            caption: None,
            tall: false,
            page: ROWS,
            what: "lines",
            order: Order::new(),
            places: None,
            file: None,
        }))
    }

    /// What stands over it.
    pub fn caption(mut self, caption: impl Into<Signal<String>>) -> Table {
        self.0.caption = Some(caption.into());
        self
    }

    /// A class of its look.
    pub fn class(mut self, class: &'static str) -> Table {
        self.0.class = class;
        self
    }

    /// It scrolls in a box of bounded height.
    pub fn tall(mut self) -> Table {
        self.0.tall = true;
        self
    }

    /// What its lines are, in the plural, and how many are on screen at most.
    pub fn pages(mut self, what: &'static str, page: usize) -> Table {
        self.0.what = what;
        self.0.page = page;
        self
    }

    /// The view keeps the order.
    pub fn order(mut self, order: Order) -> Table {
        self.0.order = order;
        self
    }

    /// The view knows which line stands at which place in that order.
    pub fn places(mut self, places: Memo<Vec<usize>>) -> Table {
        self.0.places = Some(places);
        self
    }

    /// What is saved and copied in place of the lines.
    pub fn file(mut self, file: Callback<Sheet, Sheet>) -> Table {
        self.0.file = Some(file);
        self
    }

    /// On the page, with lines that do not change.
    pub fn of(self, lines: Lines) -> AnyView {
        self.over(Signal::stored(lines))
    }

    /// On the page, over these lines.
    pub fn over(self, lines: Signal<Lines>) -> AnyView {
        let Shown { name, hook, class, caption, tall, page, what, order, places, file } = *self.0;
        // Written once for order and rows.
        let lines = Memo::new_with_compare(move |_| lines.get(), |_, _| true);
        let columns = Memo::new(move |_| lines.with(|lines| lines.columns.to_vec()));
        let places =
            places.unwrap_or_else(|| Memo::new(move |_| lines.with(|lines| lines.sorted(order.by.get()))));
        let count = Signal::derive(move || places.with(Vec::len));
        let write = move |mut sheet: Sheet| match file {
            Some(file) => untrack(|| file.run(sheet)).text(),
            None => {
                lines.with_untracked(|lines| places.with_untracked(|places| lines.write(places, &mut sheet)));
                sheet.text()
            }
        };
        let save = move |_| {
            let file = format!("{}.csv", browser::file_stem(&name.to_ascii_lowercase()));
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
        let heads = move || {
            let columns = columns.get().into_iter().enumerate();
            columns.map(|(place, column)| head(place, column, order)).collect::<Vec<_>>()
        };
        let body = move || {
            lines.with(|lines| {
                places.with(|places| {
                    let on_screen = &places[rows_of_page(order.page.get(), places.len(), page)];
                    let rows = on_screen.iter().map(|&number| row(lines.line(number), &lines.columns));
                    rows.collect::<Vec<_>>()
                })
            })
        };
        let foot = move || {
            lines.with(|lines| {
                let foot = row(lines.foot.clone()?, &lines.columns);
                Some(view! { <tfoot>{foot}</tfoot> })
            })
        };
        // The caption stands beside the buttons, which do not scroll with the table.
        let caption = caption.unwrap_or_else(|| Signal::stored(name.to_owned()));
        let id = browser::file_stem(&format!("table-{name}"));
        view! {
            <Pager page=order.page rows=count size=page what=what/>
            <div class="table" data-testid=(!hook.is_empty()).then_some(hook)>
                <div class="table-head">
                    <p class="note" id=id.clone()>{caption}</p>
                    <button class="quiet" aria-describedby=id.clone() on:click=copy>{said}</button>
                    <button class="quiet" aria-describedby=id.clone() on:click=save>"CSV"</button>
                </div>
                <div class="table-box" class:tall=tall tabindex="0" role="region" aria-label=name>
                    <table class=class aria-labelledby=id>
                        <thead><tr>{heads}</tr></thead>
                        <tbody>{body}</tbody>
                        {foot}
                    </table>
                </div>
            </div>
        }
        .into_any()
    }
}

/// The head of a column: a click sorts by it, a second one turns the order round, a third one takes it back.
fn head(place: usize, column: Column, order: Order) -> AnyView {
    let Column { head, about, class, of_buttons, sorts } = column;
    let about = (!about.is_empty()).then_some(about);
    if !sorts {
        let unseen = if of_buttons { "visually-hidden" } else { "" };
        return view! { <th scope="col" class=class title=about><span class=unseen>{head}</span></th> }
            .into_any();
    }
    let sorted = move || match order.by.get() {
        Some((by, falling)) if by == place => Some(if falling { "descending" } else { "ascending" }),
        _ => None,
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
    view! { <th scope="col" class=class title=about aria-sort=sorted><button class="sort" on:click=turn>{head}</button></th> }
        .into_any()
}

fn row(line: Line, columns: &[Column]) -> AnyView {
    let Parts { cells, is_heading, hook, click, current } = *line.0;
    let mut place = 0;
    let cells: Vec<AnyView> = cells
        .into_iter()
        .map(|one| {
            let class = columns.get(place).map_or("", |column| column.class);
            place += one.span;
            cell(one, class, is_heading)
        })
        .collect();
    let class = match (&click, is_heading) {
        (Some(_), _) => "choosable",
        (None, true) => "part",
        (None, false) => "",
    };
    let current = current.map(|current| move || current.get().then_some("true"));
    // A click on a button in it reaches the row.
    let click = move |_| click.iter().for_each(|click| click());
    let (hook, of) = hook.unzip();
    view! { <tr class=class data-testid=hook data-of=of aria-current=current on:click=click>{cells}</tr> }
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
