//! What a table is of: columns, lines and cells, each with what is shown and what it is worth.

use std::cmp::Ordering;
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
#[derive(Debug, Clone)]
pub struct Column {
    /// Its head.
    pub(super) head: String,
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
    pub fn new(head: impl Into<String>) -> Column {
        Column { head: head.into(), about: "", class: "", of_buttons: false, sorts: true }
    }

    /// Of words.
    pub fn word(head: &'static str) -> Column {
        Column::new(head).class("word")
    }

    /// Of buttons, which do this.
    pub fn buttons(does: &'static str) -> Column {
        Column { of_buttons: true, sorts: false, ..Column::word(does) }
    }

    /// By which lines are not sorted.
    pub fn unsorted(self) -> Column {
        Column { sorts: false, ..self }
    }

    /// With what it is.
    pub fn about(self, about: &'static str) -> Column {
        Column { about, ..self }
    }

    /// With a class of its own.
    pub fn class(self, class: &'static str) -> Column {
        Column { class, ..self }
    }
}

/// A cell.
#[derive(Clone)]
pub struct Cell {
    pub(super) text: String,
    /// What it is worth in order and in files, if it is a number.
    pub(super) value: Option<f64>,
    pub(super) shows: Option<Shows>,
    /// Whether it names its line.
    pub(super) is_head: bool,
    /// Columns that it reaches over.
    pub(super) span: usize,
    pub(super) class: &'static str,
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), value: None, shows: None, is_head: false, span: 1, class: "" }
    }

    /// The name of its line.
    pub fn head(text: impl Into<String>) -> Cell {
        Cell { is_head: true, ..Cell::text(text) }
    }

    /// A number, as it is shown.
    pub fn number(value: f64, text: String) -> Cell {
        Cell { value: Some(value), ..Cell::text(text) }
    }

    /// A number that may be unknown, as a word shows it then.
    pub fn number_or(value: Option<f64>, show: impl Fn(f64) -> String, unknown: &'static str) -> Cell {
        match value {
            Some(value) => Cell::number(value, show(value)),
            None => Cell::text(unknown),
        }
    }

    /// Worth this number in order and in files.
    pub fn worth(self, value: Option<f64>) -> Cell {
        Cell { value, ..self }
    }

    /// A count, in all of its digits.
    pub fn exact(count: u64) -> Cell {
        Cell::number(count as f64, format::exact(count))
    }

    /// Bytes, in GiB.
    pub fn gib(bytes: u64) -> Cell {
        Cell::number(bytes as f64, format::gib(bytes))
    }

    /// A button in place of the text; `label` says whole what it does.
    pub fn button(text: &'static str, label: String, click: impl Fn() + Send + Sync + 'static) -> Cell {
        let click: Click = Arc::new(click);
        Cell::text("").shows(move || {
            let (label, click) = (label.clone(), click.clone());
            view! { <button class="link" aria-label=label on:click=move |_| click()>{text}</button> }
                .into_any()
        })
    }

    /// What is shown where nothing else is.
    pub fn text_of(&self) -> &str {
        &self.text
    }

    /// Shows this in place of its text.
    pub fn shows(self, view: impl Fn() -> AnyView + Send + Sync + 'static) -> Cell {
        Cell { shows: Some(Arc::new(view)), ..self }
    }

    /// As the name of its line.
    pub fn as_head(self) -> Cell {
        Cell { is_head: true, ..self }
    }

    /// Reaches over so many columns.
    pub fn over(self, span: usize) -> Cell {
        Cell { span, ..self }
    }

    /// With a class of its own.
    pub fn class(self, class: &'static str) -> Cell {
        Cell { class, ..self }
    }

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

/// A line.
#[derive(Clone, Default)]
pub struct Line {
    pub(super) cells: Vec<Cell>,
    /// Whether it stands over those that follow, as long as they are in their own order.
    pub(super) is_heading: bool,
    /// Attributes for tests.
    pub(super) marks: Vec<(&'static str, String)>,
    pub(super) click: Option<Click>,
    pub(super) current: Option<Signal<bool>>,
}

impl Line {
    /// Of these cells.
    pub fn of(cells: Vec<Cell>) -> Line {
        Line { cells, ..Line::default() }
    }

    /// Over the lines that follow.
    pub fn heading(cells: Vec<Cell>) -> Line {
        Line { is_heading: true, ..Line::of(cells) }
    }

    /// With an attribute that tests look for.
    pub fn mark(mut self, name: &'static str, value: impl Into<String>) -> Line {
        self.marks.push((name, value.into()));
        self
    }

    /// A click anywhere on it does this.
    pub fn click(self, click: impl Fn() + Send + Sync + 'static) -> Line {
        Line { click: Some(Arc::new(click)), ..self }
    }

    /// Whether it is the one that holds now.
    pub fn current(self, current: Signal<bool>) -> Line {
        Line { current: Some(current), ..self }
    }
}

/// All lines of a table; each is written when it is wanted, since most of a long table's are not on screen.
#[derive(Clone)]
pub struct Lines {
    pub(super) count: usize,
    line: Write,
    pub(super) foot: Option<Line>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::of(Vec::new())
    }
}

impl Lines {
    /// These.
    pub fn of(lines: Vec<Line>) -> Lines {
        Lines::written(lines.len(), move |number| lines.get(number).cloned().unwrap_or_default())
    }

    /// So many, each written by its number.
    pub fn written(count: usize, line: impl Fn(usize) -> Line + Send + Sync + 'static) -> Lines {
        Lines { count, line: Arc::new(line), foot: None }
    }

    /// With a line of sums below.
    pub fn foot(self, cells: Vec<Cell>) -> Lines {
        Lines { foot: Some(Line::of(cells)), ..self }
    }

    /// A line.
    pub(super) fn line(&self, number: usize) -> Line {
        (self.line)(number)
    }

    /// Numbers of lines in the order of a column, or in their own; headings stand in their own alone.
    pub fn sorted(&self, by: Option<(usize, bool)>) -> Vec<usize> {
        let Some((column, falling)) = by else { return (0..self.count).collect() };
        let keys = (0..self.count).map(|number| (number, self.line(number)));
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

    /// Writes heads and lines in this order, and the line of sums.
    pub fn write(&self, columns: &[Column], order: &[usize], sheet: &mut Sheet) {
        let mut put = |cells: Vec<String>| {
            let kept = cells.iter().zip(columns).filter(|(_, column)| !column.of_buttons);
            let kept: Vec<&dyn std::fmt::Display> = kept.map(|(cell, _)| cell as _).collect();
            sheet.row(&kept);
        };
        put(columns.iter().map(|column| column.head.clone()).collect());
        for line in order.iter().map(|&number| self.line(number)).filter(|line| !line.is_heading) {
            put(line.cells.iter().map(Cell::in_file).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Lines {
        let line = |name: &str, value: f64| {
            Line::of(vec![Cell::text("Use"), Cell::head(name), Cell::number(value, format!("{value} s"))])
        };
        let heading = Line::heading(vec![Cell::head("tight").over(3)]);
        Lines::of(vec![line("b", 10.0), line("a", 9.0), heading, line("c", 10.0)])
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
        let columns = [Column::buttons("Choose"), Column::word("Name"), Column::new("Step")];
        let mut sheet = Sheet::csv();
        lines().write(&columns, &lines().sorted(Some((2, false))), &mut sheet);
        assert_eq!(sheet.text(), "Name,Step\na,9\nb,10\nc,10\n");
    }
}
