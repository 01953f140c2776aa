//! Pages of a long table: a bounded number of rows is on screen.

use std::ops::Range;

use leptos::prelude::*;

use crate::format;
use crate::testid;

/// The rows of a page; the last page when there are fewer.
pub fn rows_of_page(page: usize, rows: usize, size: usize) -> Range<usize> {
    let start = page.min(rows.saturating_sub(1) / size) * size;
    start..rows.min(start + size)
}

/// Says which rows are on screen, and turns pages.
#[component]
pub fn Pager(
    /// The page, from 0.
    page: RwSignal<usize>,
    /// All rows.
    #[prop(into)]
    rows: Signal<usize>,
    /// Rows of a page.
    size: usize,
    /// What the rows are, in the plural.
    what: &'static str,
) -> impl IntoView {
    let shown = move || rows_of_page(page.get(), rows.get(), size);
    let says = move || {
        let (shown, rows) = (shown(), rows.get());
        let exact = |count: usize| format::exact(count as u64);
        format!("{} to {} of {} {what}", exact(shown.start + 1), exact(shown.end), exact(rows))
    };
    let turn = move |forward: bool| {
        let now = shown().start / size;
        page.set(if forward { now + 1 } else { now.saturating_sub(1) });
    };
    view! {
        <div class="row pager" hidden=move || rows.get() <= size>
            <button data-testid=testid::PAGE_BEFORE disabled=move || shown().start == 0 on:click=move |_| turn(false)>"Before"</button>
            <button data-testid=testid::PAGE_AFTER disabled=move || shown().end == rows.get() on:click=move |_| turn(true)>"After"</button>
            <span class="note" aria-live="polite">{says}</span>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_all_rows_once() {
        for rows in [0usize, 1, 49, 50, 51, 100, 101] {
            let pages = rows.div_ceil(50).max(1);
            let covered: Vec<usize> = (0..pages).flat_map(|page| rows_of_page(page, rows, 50)).collect();
            assert_eq!(covered, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_page_beyond_the_end_is_the_last() {
        assert_eq!(rows_of_page(9, 60, 50), 50..60);
        assert_eq!(rows_of_page(3, 0, 50), 0..0);
    }
}
