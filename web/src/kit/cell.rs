//! What a table is of: columns, lines and cells, each with what is shown and what it is worth.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Display;
use std::sync::Arc;

use leptos::prelude::*;

use super::Sheet;
use crate::format;

/// What is shown in place of a cell's text.
type Shows = Arc<dyn Fn() -> AnyView + Send + Sync>;
/// What a click does.
type Click = Arc<dyn Fn() + Send + Sync>;
/// Writes a line of a table by its number.
type Write = Arc<dyn Fn(usize) -> Line + Send + Sync>;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its head.
    pub(super) head: &'static str,
    /// What it is, when it is pointed at.
    pub(super) about: &'static str,
    /// Class of its head and cells.
    pub(super) class: &'static str,
    /// Of buttons: its head is not seen, and it is in no file.
    pub(super) of_buttons: bool,
    /// Whether lines can be sorted by it.
    pub(super) sorts: bool,
}

impl Column {
    /// Of numbers.
    pub const fn new(head: &'static str) -> Column {
        Column { head, about: "", class: "", of_buttons: false, sorts: true }
    }

    /// Of words.
    pub const fn word(head: &'static str) -> Column {
        Column::new(head).class("word")
    }

    /// Of buttons, which do this.
    pub const fn buttons(does: &'static str) -> Column {
        Column { of_buttons: true, sorts: false, ..Column::word(does) }
    }

    /// By which lines are not sorted.
    pub const fn unsorted(self) -> Column {
        Column { sorts: false, ..self }
    }

    /// With what it is.
    pub const fn about(self, about: &'static str) -> Column {
        Column { about, ..self }
    }

    /// With a class of its own.
    pub const fn class(self, class: &'static str) -> Column {
        Column { class, ..self }
    }
}

/// A cell.
#[derive(Clone, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    /// What it is worth in order and in files, if it is a number.
    value: Option<f64>,
    pub(super) shows: Option<Shows>,
    /// Whether it names its line.
    pub(super) is_head: bool,
    /// Columns that it reaches over.
    pub(super) span: usize,
    pub(super) class: &'static str,
}

impl Cell {
    /// As it stands in a file: numbers without marks of thousands.
    fn in_file(&self) -> String {
        self.value.map_or_else(|| self.text.clone(), |value| value.to_string())
    }

    /// Numbers before texts.
    fn order(&self, other: &Cell) -> Ordering {
        match (self.value, other.value) {
            (Some(own), Some(other)) => own.total_cmp(&other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.text.cmp(&other.text),
        }
    }
}

/// A line: its cells, one after the other, each followed by what is special about it.
#[derive(Clone, Default)]
pub struct Line(pub(super) Box<Parts>);

/// What a line has.
#[derive(Clone, Default)]
pub(super) struct Parts {
    pub(super) cells: Vec<Cell>,
    /// Whether it stands over those that follow, as long as they are in their own order.
    pub(super) is_heading: bool,
    /// Test hook, and which one it is.
    pub(super) hook: Option<(&'static str, String)>,
    pub(super) click: Option<Click>,
    pub(super) current: Option<Signal<bool>>,
}

impl Line {
    /// Without cells.
    pub fn new() -> Line {
        Line::default()
    }

    /// Over the lines that follow.
    pub fn heading() -> Line {
        let mut line = Line::new();
        line.0.is_heading = true;
        line
    }

    fn cell(mut self, text: String, value: Option<f64>) -> Line {
        self.0.cells.push(Cell { text, value, span: 1, ..Cell::default() });
        self
    }

    fn change(mut self, change: impl FnOnce(&mut Cell)) -> Line {
        if let Some(cell) = self.0.cells.last_mut() {
            change(cell);
        }
        self
    }

    /// A text.
    pub fn text(self, text: impl Into<String>) -> Line {
        self.cell(text.into(), None)
    }

    /// The name of the line.
    pub fn head(self, text: impl Into<String>) -> Line {
        self.text(text).naming()
    }

    /// A number, as it is shown.
    pub fn number(self, value: f64, text: String) -> Line {
        self.cell(text, Some(value))
    }

    /// A number that may be unknown, as a word shows it then.
    pub fn number_or(self, value: Option<f64>, show: &dyn Fn(f64) -> String, unknown: &'static str) -> Line {
        self.cell(value.map_or_else(|| unknown.to_owned(), show), value)
    }

    /// A count, in all of its digits.
    pub fn exact(self, count: u64) -> Line {
        self.cell(format::exact(count), Some(count as f64))
    }

    /// Bytes, in GiB.
    pub fn gib(self, bytes: u64) -> Line {
        self.cell(format::gib(bytes), Some(bytes as f64))
    }

    /// A button; `label` says whole what it does.
    pub fn button(self, text: &'static str, label: String, click: impl Fn() + Send + Sync + 'static) -> Line {
        let click: Click = Arc::new(click);
        self.text("").shows(move || {
            let (label, click) = (label.clone(), click.clone());
            view! { <button class="link" aria-label=label on:click=move |_| click()>{text}</button> }
                .into_any()
        })
    }

    /// The cell shows this in place of its text.
    pub fn shows(self, view: impl Fn() -> AnyView + Send + Sync + 'static) -> Line {
        self.shows_it(Arc::new(view))
    }

    fn shows_it(self, view: Shows) -> Line {
        self.change(|cell| cell.shows = Some(view))
    }

    /// The cell names the line.
    pub fn naming(self) -> Line {
        self.change(|cell| cell.is_head = true)
    }

    /// The cell is worth this number in order and in files.
    pub fn worth(self, value: Option<f64>) -> Line {
        self.change(|cell| cell.value = value)
    }

    /// The cell reaches over so many columns.
    pub fn over(self, span: usize) -> Line {
        self.change(|cell| cell.span = span)
    }

    /// The cell has a class of its own.
    pub fn class(self, class: &'static str) -> Line {
        self.change(|cell| cell.class = class)
    }

    /// With a test hook, and which of those that have it this is.
    pub fn hook(mut self, hook: &'static str, of: String) -> Line {
        self.0.hook = Some((hook, of));
        self
    }

    /// A click anywhere on it does this.
    pub fn click(mut self, click: impl Fn() + Send + Sync + 'static) -> Line {
        self.0.click = Some(Arc::new(click));
        self
    }

    /// Whether it is the one that holds now.
    pub fn current(mut self, current: Signal<bool>) -> Line {
        self.0.current = Some(current);
        self
    }
}

/// A table's columns and lines; a line is written when it is wanted, since most of a long table's are not on screen.
#[derive(Clone)]
pub struct Lines {
    pub(super) columns: Cow<'static, [Column]>,
    count: usize,
    line: Write,
    pub(super) foot: Option<Line>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::of(Vec::new(), Vec::new())
    }
}

impl Lines {
    /// These.
    pub fn of(columns: impl Into<Cow<'static, [Column]>>, lines: Vec<Line>) -> Lines {
        Lines::written(columns, lines.len(), move |number| lines.get(number).cloned().unwrap_or_default())
    }

    /// So many, each written by its number.
    pub fn written(
        columns: impl Into<Cow<'static, [Column]>>,
        count: usize,
        line: impl Fn(usize) -> Line + Send + Sync + 'static,
    ) -> Lines {
        Lines { columns: columns.into(), count, line: Arc::new(line), foot: None }
    }

    /// With a line of sums below.
    pub fn foot(self, foot: Line) -> Lines {
        Lines { foot: Some(foot), ..self }
    }

    /// A line.
    pub(super) fn line(&self, number: usize) -> Line {
        (self.line)(number)
    }

    /// Numbers of lines in the order of a column, or in their own; headings stand in their own alone.
    pub fn sorted(&self, by: Option<(usize, bool)>) -> Vec<usize> {
        let Some((column, falling)) = by else { return (0..self.count).collect() };
        let keys = (0..self.count).map(|number| (number, self.line(number).0));
        let mut keys: Vec<(usize, Cell)> = keys
            .filter(|(_, line)| !line.is_heading)
            .filter_map(|(number, line)| Some((number, line.cells.into_iter().nth(column)?)))
            .collect();
        // Stable: lines that are equal there keep their order.
        planner::order::sort_by(&mut keys, |a, b| {
            let order = a.1.order(&b.1);
            if falling { order.reverse() } else { order }
        });
        keys.into_iter().map(|(number, _)| number).collect()
    }

    /// Writes heads and lines in this order.
    pub fn write(&self, order: &[usize], sheet: &mut Sheet) {
        let mut put = |cells: &[String]| {
            let kept = cells.iter().zip(&*self.columns).filter(|(_, column)| !column.of_buttons);
            let kept: Vec<&dyn Display> = kept.map(|(cell, _)| cell as _).collect();
            sheet.row(&kept);
        };
        let heads: Vec<String> = self.columns.iter().map(|column| column.head.to_owned()).collect();
        put(&heads);
        for line in order.iter().map(|&number| self.line(number).0).filter(|line| !line.is_heading) {
            let cells: Vec<String> = line.cells.iter().map(Cell::in_file).collect();
            put(&cells);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Lines {
        const COLUMNS: [Column; 3] = [Column::buttons("Choose"), Column::word("Name"), Column::new("Step")];
        let line =
            |name: &str, value: f64| Line::new().text("Use").head(name).number(value, format!("{value} s"));
        let heading = Line::heading().head("tight").over(3);
        Lines::of(&COLUMNS[..], vec![line("b", 10.0), line("a", 9.0), heading, line("c", 10.0)])
    }

    #[test]
    fn lines_are_sorted_by_what_cells_are_worth_and_stay_in_order_where_they_are_equal() {
        assert_eq!(lines().sorted(None), [0, 1, 2, 3]);
        assert_eq!(lines().sorted(Some((2, false))), [1, 0, 3]);
        assert_eq!(lines().sorted(Some((2, true))), [0, 3, 1]);
        assert_eq!(lines().sorted(Some((1, false))), [1, 0, 3]);
        assert_eq!(lines().sorted(Some((9, false))), [0usize; 0]);
    }

    #[test]
    fn a_file_has_plain_numbers_and_neither_buttons_nor_headings() {
        let mut sheet = Sheet::csv();
        lines().write(&lines().sorted(Some((2, false))), &mut sheet);
        assert_eq!(sheet.text(), "Name,Step\na,9\nb,10\nc,10\n");
    }
}
