//! Sorted lists and maps without a sort for each.
//!
//! std compiles its sort for each type and order, and for each kind of map that is collected, some kilobytes of the page's
//! modules each. Here one sort puts places in order, and then the values are moved, which takes a call for each comparison:
//! what sorts for every candidate of a search asks std.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Sorts values by their own order.
pub fn sort<T: Ord>(values: &mut [T]) {
    sort_by(values, T::cmp);
}

/// Sorts values by a key; those of equal keys stay in their order.
pub fn sort_by_key<T, K: Ord>(values: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(values, |one, other| key(one).cmp(&key(other)));
}

/// Sorts values by `compare`; those that are equal by it stay in their order.
pub fn sort_by<T>(values: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut places: Vec<usize> = (0..values.len()).collect();
    sort_places(&mut places, &|one, other| compare(&values[one], &values[other]));
    // Each value is moved to where it belongs along its circle of places, which then point at themselves.
    for first in 0..places.len() {
        let mut place = first;
        while places[place] != first {
            let from = std::mem::replace(&mut places[place], place);
            values.swap(place, from);
            place = from;
        }
        places[place] = place;
    }
}

/// A map of entries, of which later ones replace those before of the same key.
pub fn map<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}

fn sort_places(places: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    places.sort_by(|&one, &other| compare(one, other));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        /// Values end where std's stable sort puts them.
        #[test]
        fn values_are_sorted_as_std_sorts_them(values in prop::collection::vec((0_u8..20, any::<u16>()), 0..100)) {
            let (mut ours, mut theirs) = (values.clone(), values.clone());
            super::sort(&mut ours);
            theirs.sort();
            prop_assert_eq!(&ours, &theirs);
            let (mut ours, mut theirs) = (values.clone(), values);
            super::sort_by_key(&mut ours, |value| value.0);
            theirs.sort_by_key(|value| value.0);
            prop_assert_eq!(ours, theirs);
        }
    }
}
