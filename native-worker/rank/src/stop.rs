//! Stopping in good order: a signal to any rank, or `stop` in the run folder's `control` file, ends all ranks after
//! the same step.

use std::path::Path;

use tch::Tensor;

use crate::collectives::{Collectives, GroupId, Reduce};
use crate::sys::signals;

/// What is read of a control file; a longer one says something else.
const MAX_CONTROL_BYTES: u64 = 64;

/// Whether the control file asks to stop.
fn control_says_stop(folder: &Path) -> bool {
    let path = folder.join("control");
    let small = std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() <= MAX_CONTROL_BYTES);
    small && std::fs::read_to_string(&path).is_ok_and(|text| text.trim() == "stop")
}

/// Why to stop now, if any rank was asked to; the same answer on all ranks. Rank 0 alone reads the control file, as a
/// shared filesystem may show it to some ranks later than to others.
///
/// # Errors
/// When the collective fails.
pub fn asked(world: &dyn Collectives, group: GroupId, folder: &Path) -> anyhow::Result<Option<String>> {
    let rank = world.rank() as i64;
    let mine = if world.rank() == 0 && control_says_stop(folder) {
        i64::MAX
    } else if signals::asked().is_some() {
        rank + 1
    } else {
        0
    };
    let mut largest = Tensor::f_from_slice(&[mine])?;
    world.all_reduce(group, Reduce::Max, &mut largest)?;
    Ok(match largest.f_int64_value(&[0])? {
        0 => None,
        i64::MAX => Some("stopped by the run's control file".to_owned()),
        number if number == rank + 1 => {
            Some(format!("stopped by {} to rank {rank}", signals::asked().unwrap_or("a signal")))
        }
        number => Some(format!("stopped by a signal to rank {}", number - 1)),
    })
}

#[cfg(test)]
mod tests {
    use super::control_says_stop;

    #[test]
    fn only_stop_stops() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!control_says_stop(folder.path()));
        for (text, expected) in [("stop", true), ("stop\n", true), ("", false), ("go on", false)] {
            std::fs::write(folder.path().join("control"), text).unwrap();
            assert_eq!(control_says_stop(folder.path()), expected, "{text:?}");
        }
        std::fs::write(folder.path().join("control"), format!("stop{}", " ".repeat(100))).unwrap();
        assert!(!control_says_stop(folder.path()));
    }
}
