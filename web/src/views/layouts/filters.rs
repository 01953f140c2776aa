//! Which layouts are listed.

use std::collections::BTreeSet;
use std::sync::Arc;

use leptos::prelude::*;
use planner::rules::LayoutChoice;

use super::AXES;
use crate::format;
use crate::kit::Order;
use crate::testid;
use crate::views::session::session;

/// A size asked for, per axis.
type Wanted = [Option<u64>; AXES.len()];

/// What is asked of the list.
#[derive(Clone, Copy)]
pub struct Sifting {
    wanted: RwSignal<Wanted>,
    /// In which order, and which are on screen.
    pub order: Order,
}

impl Sifting {
    /// All, in their own order.
    pub fn new() -> Sifting {
        Sifting { wanted: RwSignal::new([None; AXES.len()]), order: Order::new() }
    }
}

/// The layouts that pass the filters.
#[derive(Clone, Copy)]
pub struct Kept {
    /// They.
    pub choices: Memo<Vec<LayoutChoice>>,
    wanted: RwSignal<Wanted>,
}

impl Kept {
    /// Of all layouts.
    pub fn new(all: Memo<Option<Arc<Vec<LayoutChoice>>>>) -> Kept {
        let Sifting { wanted, .. } = session().layouts;
        let choices = Memo::new(move |_| {
            let wanted = wanted.get();
            all.with(|all| match all {
                Some(all) => keep(all, &wanted),
                None => Vec::new(),
            })
        });
        Kept { choices, wanted }
    }
}

fn keep(all: &[LayoutChoice], wanted: &Wanted) -> Vec<LayoutChoice> {
    let passes = |choice: &&LayoutChoice| {
        AXES.iter().zip(wanted).all(|((.., read), wanted)| wanted.is_none_or(|wanted| read(choice) == wanted))
    };
    all.iter().filter(passes).copied().collect()
}

/// A select per axis that varies.
#[component]
pub fn Filters(
    kept: Kept,
    all: Memo<Option<Arc<Vec<LayoutChoice>>>>,
    page: RwSignal<usize>,
) -> impl IntoView {
    let sizes = Memo::new(move |_| {
        all.with(|all| {
            let all = all.as_ref().map(|all| all.as_slice()).unwrap_or_default();
            AXES.map(|(.., read)| all.iter().map(read).collect::<BTreeSet<u64>>())
        })
    });
    // A size that is no longer among the valid ones would hide everything for good.
    Effect::new(move |_| {
        sizes.with(|sizes| {
            let lost = |wanted: &Wanted| {
                wanted
                    .iter()
                    .zip(sizes)
                    .any(|(wanted, sizes)| wanted.is_some_and(|size| !sizes.contains(&size)))
            };
            if kept.wanted.with_untracked(lost) {
                kept.wanted.update(|wanted| {
                    for (wanted, sizes) in wanted.iter_mut().zip(sizes) {
                        *wanted = wanted.filter(|size| sizes.contains(size));
                    }
                });
            }
        });
    });
    let select = move |place: usize| {
        let (id, what, _) = AXES[place];
        let choose = move |value: String| {
            kept.wanted.update(|wanted| wanted[place] = value.parse().ok());
            page.set(0);
        };
        let option = move |size: u64| {
            view! { <option value=size.to_string() prop:selected=move || kept.wanted.get()[place] == Some(size)>{format::exact(size)}</option> }
        };
        let options = move || sizes.with(|sizes| sizes[place].iter().copied().map(option).collect_view());
        let varies = move || sizes.with(|sizes| sizes[place].len() > 1);
        view! {
            <label hidden=move || !varies()>{id.to_ascii_uppercase()}
                <select aria-label=format!("{what}, filter") data-testid=format!("{}{id}", testid::LAYOUTS_FILTER)
                    on:change=move |event| choose(event_target_value(&event))>
                    <option value="" prop:selected=move || kept.wanted.get()[place].is_none()>"any"</option>
                    {options}
                </select>
            </label>
        }
    };
    let kept_count = move || {
        kept.wanted.with(|wanted| wanted.iter().any(Option::is_some)).then(|| {
            let text = format!("{} listed", format::exact(kept.choices.with(Vec::len) as u64));
            let clear = move |_| kept.wanted.set([None; AXES.len()]);
            view! { <span class="note" role="status">{text}</span><button class="quiet" on:click=clear>"All"</button> }
        })
    };
    view! {
        <div class="filters" role="group" aria-label="Filter by size">
            {(0..AXES.len()).map(select).collect_view()}
            {kept_count}
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_keep_what_is_wanted() {
        let one = LayoutChoice { tp: 1, cp: 1, pp: 1, vpp: 1, ep: 1, etp: 1, dp: 8, edp: 8 };
        let all = [one, LayoutChoice { pp: 2, dp: 4, ..one }, LayoutChoice { tp: 2, dp: 4, ..one }];
        let mut wanted = [None; AXES.len()];
        assert_eq!(keep(&all, &wanted), all);
        wanted[6] = Some(4);
        assert_eq!(keep(&all, &wanted), [all[1], all[2]]);
        wanted[0] = Some(3);
        assert!(keep(&all, &wanted).is_empty());
    }
}
