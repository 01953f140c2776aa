//! Slots of a tensor-parallel group that go on, and those that stop.

use std::collections::BTreeMap;

use super::Refusal;

/// Parity: every replica that lost slots gives up as many as the one that lost most, and the shorter lists are filled
/// with their highest healthy slots.
///
/// `failed` maps a replica to its failed slots, in any order. Returns how many slots each gives up and which, sorted;
/// replicas without failures are left out.
///
/// # Errors
/// When a slot does not exist or is listed twice, or when nothing of a group is left.
pub(crate) fn spares_with_parity(
    base: u64,
    failed: &BTreeMap<u64, Vec<u64>>,
) -> Result<(u64, BTreeMap<u64, Vec<u64>>), Refusal> {
    let mut inactive = BTreeMap::new();
    for (&replica, slots) in failed.iter().filter(|(_, slots)| !slots.is_empty()) {
        let mut slots = slots.clone();
        slots.sort_unstable();
        if let Some(&slot) = slots.iter().find(|&&slot| slot >= base) {
            return Err(Refusal::NoSuchSlot { replica, slot, base });
        }
        if let Some(pair) = slots.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Refusal::Twice { replica, slot: pair[0] });
        }
        if slots.len() as u64 == base {
            return Err(Refusal::NothingLeft { replica, failed: base, base });
        }
        inactive.insert(replica, slots);
    }
    let spares = inactive.values().map(Vec::len).max().unwrap_or(0);
    for slots in inactive.values_mut() {
        fill_up(base, slots, spares as u64);
    }
    Ok((spares as u64, inactive))
}

/// Adds the highest healthy slots to those that stop until there are `spares`, and sorts them.
pub(crate) fn fill_up(base: u64, slots: &mut Vec<u64>, spares: u64) {
    let healthy: Vec<u64> = (0..base).rev().filter(|slot| !slots.contains(slot)).collect();
    let missing = spares.saturating_sub(slots.len() as u64);
    slots.extend(healthy.into_iter().take(missing as usize));
    slots.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    type Slots<'a> = &'a [(u64, &'a [u64])];

    fn map(slots: Slots) -> BTreeMap<u64, Vec<u64>> {
        slots.iter().map(|&(replica, slots)| (replica, slots.to_vec())).collect()
    }

    fn check(base: u64, failed: Slots, expected: Result<(u64, Slots), &str>) {
        let found = spares_with_parity(base, &map(failed)).map_err(|refusal| refusal.to_string());
        match (found, expected) {
            (Ok(found), Ok((spares, slots))) => assert_eq!(found, (spares, map(slots)), "{failed:?}"),
            (Err(found), Err(part)) => assert!(found.contains(part), "{failed:?}: {found}"),
            (found, expected) => panic!("{failed:?}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn shorter_lists_give_up_their_highest_healthy_slots() {
        check(8, &[(0, &[2, 5]), (1, &[1])], Ok((2, &[(0, &[2, 5]), (1, &[1, 7])])));
        check(8, &[(0, &[7]), (2, &[0, 1, 2])], Ok((3, &[(0, &[5, 6, 7]), (2, &[0, 1, 2])])));
        check(8, &[(1, &[7, 6]), (3, &[7])], Ok((2, &[(1, &[6, 7]), (3, &[6, 7])])));
        check(4, &[(0, &[3]), (1, &[2]), (5, &[0, 1])], Ok((2, &[(0, &[2, 3]), (1, &[2, 3]), (5, &[0, 1])])));
        check(8, &[], Ok((0, &[])));
        check(8, &[(3, &[])], Ok((0, &[])));
    }

    #[test]
    fn what_can_not_be_is_said() {
        check(4, &[(0, &[0, 1, 2, 3])], Err("leave out that replica"));
        check(4, &[(2, &[4])], Err("slot 4 of replica 2 does not exist: slots are numbered from 0 to 3"));
        check(4, &[(2, &[1, 3, 1])], Err("slot 1 of replica 2 is listed twice"));
    }
}
