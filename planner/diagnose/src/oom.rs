//! Figures of PyTorch's out-of-memory message.
//!
//! CUDACachingAllocator.cpp: 1.x and 2.0 write `(GPU 0; 79.15 GiB total capacity; ... already allocated; ... free; ...
//! reserved in total by PyTorch)`, later versions sentences.

use serde::{Deserialize, Serialize};

/// A part of the GPU's memory that is looked at where other processes hold so much of it: less is contexts and the driver's own.
const CONSIDERABLE: u64 = 20;
/// The part from which others are taken to hold what a message without a word on processes leaves open: libraries of this
/// process hold memory outside of PyTorch, too, some GiB.
const UNEXPLAINED: u64 = 4;
/// Processes that are kept.
const MOST_PROCESSES: usize = 16;

/// A process that holds memory of the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherProcess {
    /// Its id, as the node counts: a container may count otherwise.
    pub pid: u64,
    /// What it holds.
    pub bytes: u64,
}

/// What an out-of-memory message says, in bytes; they are as exact as two decimals of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// Asked for.
    pub tried_bytes: Option<u64>,
    /// The GPU's memory.
    pub capacity_bytes: Option<u64>,
    /// Left on the GPU.
    pub free_bytes: Option<u64>,
    /// Used by this process, with what is outside the allocator.
    pub in_use_bytes: Option<u64>,
    /// Tensors.
    pub allocated_bytes: Option<u64>,
    /// Taken from the GPU by the allocator and not in tensors.
    pub unused_bytes: Option<u64>,
    /// Taken from the GPU by the allocator.
    pub reserved_bytes: Option<u64>,
    /// Other processes on the GPU, as far as the message names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherProcess>,
}

impl OutOfMemory {
    /// What other processes hold of the GPU: as listed, or what is neither free nor this process's; none where that is no
    /// considerable part of the GPU, or the message does not tell.
    pub(super) fn held_by_others(&self) -> Option<u64> {
        let listed = self.others.iter().map(|other| other.bytes).fold(0, u64::saturating_add);
        let capacity = self.capacity_bytes;
        let beside = |own: u64| capacity?.checked_sub(self.free_bytes?)?.checked_sub(own);
        let (held, least) = match (self.in_use_bytes, self.reserved_bytes) {
            (Some(own), _) => {
                // What is listed leaves out the driver's own part, and may leave out more.
                let beside = beside(own).unwrap_or(0);
                let is_all = beside.saturating_sub(listed) <= capacity.unwrap_or(0) / CONSIDERABLE;
                (if is_all && listed > 0 { listed } else { beside.max(listed) }, CONSIDERABLE)
            }
            (None, Some(own)) if listed == 0 => (beside(own).unwrap_or(0), UNEXPLAINED),
            _ => (listed, CONSIDERABLE),
        };
        (held > 0 && capacity.is_none_or(|capacity| held > capacity / least)).then_some(held)
    }

    /// What others hold, where the allocation failed for it: the GPU had not enough left, and would have had without them.
    pub(super) fn taken_by_others(&self) -> Option<u64> {
        let held = self.held_by_others()?;
        let tried = self.tried_bytes?;
        let free = self.free_bytes.unwrap_or(0);
        (free < tried && free.saturating_add(held) >= tried).then_some(held)
    }

    /// Which of the listed processes is this one, where the message does not say so: in a container it does not know itself by
    /// the id that the driver gives. That is the one that holds no less than the allocator took, and the least beyond it.
    fn find_itself(&mut self) {
        let (None, Some(own)) = (self.in_use_bytes, self.reserved_bytes) else { return };
        let listed = self.others.iter().map(|other| other.bytes).fold(0, u64::saturating_add);
        let unlisted = self
            .capacity_bytes
            .zip(self.free_bytes)
            .map_or(0, |(all, free)| all.saturating_sub(free).saturating_sub(listed));
        // Figures have two decimals.
        let may_be = |bytes: u64| bytes.saturating_add(own / 100) >= own;
        let nearest = (0..self.others.len())
            .filter(|&at| may_be(self.others[at].bytes))
            .min_by_key(|&at| self.others[at].bytes);
        if let Some(at) = nearest
            && !(may_be(unlisted) && unlisted < self.others[at].bytes)
        {
            self.in_use_bytes = Some(self.others.remove(at).bytes);
        }
    }
}

/// Reads the message; none where it has no figures.
pub(super) fn read(text: &str) -> Option<OutOfMemory> {
    let before = |words: &str| text.find(words).and_then(|place| last_size(&text[..place]));
    let after = |words: &str| text.find(words).and_then(|place| first_size(&text[place + words.len()..]));
    let mut found = OutOfMemory {
        tried_bytes: after("Tried to allocate"),
        capacity_bytes: before("total capacity;")
            .or_else(|| after("total capacity of"))
            .or_else(|| after("total capacty of")),
        free_bytes: before("is free").or_else(|| before(" free;")),
        in_use_bytes: after("this process has"),
        allocated_bytes: before("is allocated by PyTorch").or_else(|| before("already allocated")),
        unused_bytes: before("is reserved by PyTorch but unallocated"),
        reserved_bytes: before("reserved in total by PyTorch"),
        others: others(text),
    };
    if found.reserved_bytes.is_none() {
        found.reserved_bytes =
            found.allocated_bytes.zip(found.unused_bytes).map(|(used, unused)| used.saturating_add(unused));
    }
    found.find_itself();
    (found != OutOfMemory::default()).then_some(found)
}

/// Every `Process 12 has 3.00 GiB memory in use`.
fn others(text: &str) -> Vec<OtherProcess> {
    let process = |rest: &str| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let pid = rest[..digits].parse().ok()?;
        let said = rest[digits..].strip_prefix(" has ")?;
        let (size, _) = said.split_once(" memory in use").filter(|(size, _)| size.len() < 40)?;
        Some(OtherProcess { pid, bytes: first_size(size)? })
    };
    text.match_indices("Process ")
        .filter_map(|(place, word)| process(&text[place + word.len()..]))
        .take(MOST_PROCESSES)
        .collect()
}

/// The GPU that the message names.
pub(super) fn gpu(text: &str) -> Option<String> {
    let rest = &text[text.find("GPU ")? + 4..];
    let digits: String = rest.chars().take_while(char::is_ascii_digit).take(4).collect();
    (!digits.is_empty()).then_some(digits)
}

/// `12.50 MiB` at the start.
fn first_size(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let number = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    bytes_of(&text[..number], &text[number..])
}

/// The last size of a text.
fn last_size(text: &str) -> Option<u64> {
    let text = text.trim_end();
    let unit_at = text.rfind(' ')?;
    // `22.90 GiB`, `0 bytes`
    let number_at = text[..unit_at].rfind([' ', '(']).map_or(0, |place| place + 1);
    bytes_of(&text[number_at..unit_at], &text[unit_at..])
}

fn bytes_of(number: &str, unit: &str) -> Option<u64> {
    let unit = unit.trim_start();
    let scale: u64 = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("TiB", 1 << 40), ("bytes", 1)]
        .into_iter()
        .find(|(name, _)| unit.starts_with(name))?
        .1;
    let value: f64 = number.parse().ok()?;
    // At most a few petabytes: beyond is no memory of a GPU.
    (value.is_finite() && (0.0..1e6).contains(&value) || scale == 1).then_some(())?;
    Some((value * scale as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = (1u64 << 30) as f64;

    #[test]
    fn sentences() {
        let found = read(
            "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.25 GiB is free. \
             Including non-PyTorch memory, this process has 77.80 GiB memory in use. Of the allocated memory 70.00 GiB is \
             allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.",
        )
        .expect("figures");
        let gib = |value: f64| Some((value * GIB) as u64);
        assert_eq!(found.tried_bytes, gib(2.5));
        assert_eq!(found.capacity_bytes, gib(79.11));
        assert_eq!(found.free_bytes, gib(1.25));
        assert_eq!(found.in_use_bytes, gib(77.8));
        assert_eq!(found.allocated_bytes, gib(70.0));
        assert_eq!(found.reserved_bytes, gib(70.5));
    }

    #[test]
    fn brackets() {
        let found = read(
            "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity; 37.10 GiB already allocated; 0 bytes \
             free; 38.00 GiB reserved in total by PyTorch)",
        )
        .expect("figures");
        assert_eq!(found.tried_bytes, Some(20 << 20));
        assert_eq!(found.capacity_bytes, Some((39.59 * GIB) as u64));
        assert_eq!(found.free_bytes, Some(0));
        assert_eq!(found.reserved_bytes, Some(38 << 30));
    }

    /// A message of an 80 GB GPU with these clauses on processes.
    fn message(tried: &str, free: &str, processes: &str, allocated: &str) -> OutOfMemory {
        let text = format!(
            "CUDA out of memory. Tried to allocate {tried}. GPU 3 has a total capacity of 79.11 GiB of which {free} is free. \
             {processes}Of the allocated memory {allocated} is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but \
             unallocated."
        );
        read(&text).expect("figures")
    }

    #[test]
    fn other_processes_are_told_from_this_one() {
        let gib = |value: f64| (value * GIB) as u64;
        let pids = |found: &OutOfMemory| -> Vec<u64> { found.others.iter().map(|other| other.pid).collect() };
        let own = "Including non-PyTorch memory, this process has 18.80 GiB memory in use. ";
        let foreign = "Process 999 has 40.00 GiB memory in use. ";
        let second = "Process 12 has 20.00 GiB memory in use. ";
        for (processes, expected) in [
            (format!("{foreign}{own}"), vec![999]),
            (format!("{own}{foreign}{second}"), vec![999, 12]),
            (format!("{second}{own}{foreign}"), vec![12, 999]),
        ] {
            let found = message("2.00 GiB", "200.00 MiB", &processes, "17.00 GiB");
            assert_eq!((found.in_use_bytes, pids(&found)), (Some(gib(18.8)), expected), "{processes}");
            assert!(found.taken_by_others().is_some_and(|held| held >= gib(40.0)), "{found:?}");
        }
        // Alone on the GPU, under its own name or the one that the driver has for a container's process.
        for processes in [
            "Including non-PyTorch memory, this process has 78.80 GiB memory in use. ",
            "Process 999 has 78.80 GiB memory in use. ",
        ] {
            let found = message("2.00 GiB", "200.00 MiB", processes, "77.00 GiB");
            assert_eq!((found.in_use_bytes, pids(&found)), (Some(gib(78.8)), vec![]), "{processes}");
            assert_eq!(found.taken_by_others(), None);
        }
        // In a container, beside others: whose figure fits is this process.
        let three = format!("{foreign}Process 5 has 18.80 GiB memory in use. {second}");
        let found = message("2.00 GiB", "200.00 MiB", &three, "17.00 GiB");
        assert_eq!((found.in_use_bytes, pids(&found)), (Some(gib(18.8)), vec![999, 12]));
        assert_eq!(found.taken_by_others(), Some(gib(40.0) + gib(20.0)));
        // And where it is not listed at all.
        let found =
            message("2.00 GiB", "200.00 MiB", "Process 999 has 60.00 GiB memory in use. ", "17.00 GiB");
        assert_eq!((found.in_use_bytes, pids(&found)), (None, vec![999]));
        assert_eq!(found.taken_by_others(), Some(gib(60.0)));
    }

    #[test]
    fn others_are_to_blame_where_it_had_fit_without_them() {
        let beside = |bytes: &str, own: &str| {
            format!(
                "Process 9 has {bytes} memory in use. Including non-PyTorch memory, this process has {own} memory in use. "
            )
        };
        // A context and no more; a request that no GPU could meet; room that a limit of the process's own kept from it.
        for (tried, free, processes, allocated) in [
            ("20.00 MiB", "10.00 MiB", beside("520.00 MiB", "78.00 GiB"), "77.00 GiB"),
            ("90.00 GiB", "200.00 MiB", beside("60.00 GiB", "18.80 GiB"), "17.00 GiB"),
            ("2.00 GiB", "10.00 GiB", beside("30.00 GiB", "38.80 GiB"), "37.00 GiB"),
        ] {
            assert_eq!(message(tried, free, &processes, allocated).taken_by_others(), None, "{processes}");
        }
        // Old messages name nobody, and leave open what most of the GPU is.
        let old = |allocated: &str, reserved: &str| {
            let text = format!(
                "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 79.15 GiB total capacity; {allocated} already allocated; \
                 512.00 MiB free; {reserved} reserved in total by PyTorch)"
            );
            read(&text).and_then(|found| found.taken_by_others()).is_some()
        };
        assert!(old("17.00 GiB", "18.00 GiB"));
        assert!(!old("65.00 GiB", "70.00 GiB"));
        // What the driver can't tell is written as a number beyond any memory.
        let unknown = "Process 9 has 17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 17179869184.00 \
                       GiB memory in use. ";
        assert_eq!(message("2.00 GiB", "1.00 GiB", unknown, "70.00 GiB").taken_by_others(), None);
    }

    #[test]
    fn none() {
        assert_eq!(read("CUDA out of memory"), None);
        assert_eq!(read("Tried to allocate 9e999 GiB"), None);
    }
}
