//! What ranks talk by: the same for all, and nothing slower than was asked for without a word.

use anyhow::{bail, ensure};
use planner::layout::GroupKind;
use planner::units::Bytes;
use tch::{Device, Tensor};

use super::Collectives;
use super::host::HostCollectives;
use super::nccl::NcclCollectives;
use crate::arguments::{Arguments, CollectivesChoice};
use crate::notice;
use crate::sys::cuda::Cuda;
use crate::sys::nccl::Nccl;

/// Bytes in which a rank says where it computes, on what, and by which NCCL.
const SAID_BYTES: usize = 256;

/// The part of its memory that a GPU may have more or less than another one of its kind.
const APART: f64 = 0.05;

/// NCCL where each rank has a GPU of its own, host memory where ranks compute on CPUs, or where it is asked for: by
/// `--collectives`, or by several ranks to a GPU.
///
/// # Errors
/// With what to do, when NCCL is wanted and can't be had, when ranks share a GPU that should not, and when some have none.
pub fn choose(
    arguments: &Arguments,
    host: HostCollectives,
    name: &str,
    device: Device,
    beside: &[GroupKind],
) -> anyhow::Result<Box<dyn Collectives>> {
    let chosen =
        by_nccl(arguments, &host, name, device).inspect_err(|error| host.abort(&format!("{error:#}")))?;
    // On CPUs there is nothing to choose, so nothing is said.
    let first = host.leads() && host.size(host.mine(GroupKind::World)?) > 1 && device != Device::Cpu;
    match chosen {
        Ok(nccl) => {
            if first {
                notice(&format!("ranks talk by NCCL {}", nccl.version()));
            }
            Ok(Box::new(NcclCollectives::new(host, nccl, device, beside)?))
        }
        Err(why) => {
            if first {
                notice(&format!("ranks talk over TCP, through host memory: {why}"));
            }
            host.link_groups().inspect_err(|error| host.abort(&format!("{error:#}")))?;
            Ok(Box::new(host))
        }
    }
}

/// NCCL, or why it is not wanted.
fn by_nccl(
    arguments: &Arguments,
    host: &HostCollectives,
    name: &str,
    device: Device,
) -> anyhow::Result<Result<std::sync::Arc<Nccl>, &'static str>> {
    let everyone = host.mine(GroupKind::World)?;
    let (choice, library) = (arguments.collectives, arguments.nccl_library.as_deref());
    if choice == CollectivesChoice::Host {
        return Ok(Err("--collectives is host"));
    }
    if host.size(everyone) == 1 && choice == CollectivesChoice::Automatic {
        return Ok(Err("there is one rank"));
    }
    let (mine, kind, memory) = match device {
        Device::Cuda(index) => {
            let cuda = Cuda::loaded()?;
            let gib = Bytes(cuda.memory()?.total).gib();
            (format!("GPU {} of {name}", cuda.bus_id(index)?), cuda.kind(index)?, format!("{gib:.1} GiB"))
        }
        _ => (String::new(), String::new(), String::new()),
    };
    let places = gather(host, &mine)?;
    match unfit(&places, arguments.ranks_per_gpu > 1) {
        // Without a GPU there is only a library for tests.
        _ if library.is_some() && device == Device::Cpu => {}
        None => {}
        Some(Unfit::NoGpus) if choice == CollectivesChoice::Automatic => {
            return Ok(Err("ranks compute on CPUs"));
        }
        Some(Unfit::Meant) if choice == CollectivesChoice::Automatic => {
            return Ok(Err("several ranks share a GPU, as --ranks-per-gpu says"));
        }
        Some(unfit) => bail!(unfit.words(&places)),
    }
    let todo = "start ranks on GPUs of one kind, which is what a plan is for";
    alike("GPUs", &gather(host, &kind)?, &places, todo, |one, other| one == other)?;
    alike("GPU memory", &gather(host, &memory)?, &places, todo, as_much)?;
    let opened = Nccl::open(library);
    let versions = gather(host, &opened.as_ref().map(|nccl| nccl.version()).unwrap_or_default())?;
    let nccl = opened.map_err(|error| {
        error.context(format!("rank {} has GPUs to talk between, but no NCCL", host.rank())).context(
            "ranks can't talk by NCCL; install a torch with CUDA, which brings it, or give --collectives host, which is slower",
        )
    })?;
    ensure!(
        versions.iter().all(|version| !version.is_empty()),
        "another rank can't open NCCL; its own message says why"
    );
    let todo = "install the same torch on all machines, and look at LD_LIBRARY_PATH";
    alike("versions of NCCL", &versions, &places, todo, |one, other| one == other)?;
    Ok(Ok(nccl))
}

/// Why ranks can't talk by NCCL.
#[derive(Debug, PartialEq, Eq)]
enum Unfit {
    /// All compute on CPUs.
    NoGpus,
    /// This one does, and others on GPUs.
    WithoutGpu(usize),
    /// These two share a GPU.
    Shared(usize, usize),
    /// Ranks share GPUs, and were told to.
    Meant,
}

/// Places are where ranks compute, by rank: a GPU and its host, or nothing.
fn unfit(places: &[String], may_share: bool) -> Option<Unfit> {
    if places.iter().all(String::is_empty) {
        return Some(Unfit::NoGpus);
    }
    if let Some(rank) = places.iter().position(String::is_empty) {
        return Some(Unfit::WithoutGpu(rank));
    }
    let shared = places.iter().enumerate().find_map(|(second, place)| {
        let first = places[..second].iter().position(|other| other == place)?;
        Some((first, second))
    });
    shared.map(|(first, second)| if may_share { Unfit::Meant } else { Unfit::Shared(first, second) })
}

impl Unfit {
    fn words(&self, places: &[String]) -> String {
        match self {
            Unfit::NoGpus => {
                "--collectives is nccl, but ranks have no GPU, and NCCL needs one per rank".to_owned()
            }
            Unfit::Meant => {
                "--collectives is nccl, but several ranks share a GPU; NCCL needs one per rank".to_owned()
            }
            Unfit::WithoutGpu(rank) => {
                let other = places.iter().position(|place| !place.is_empty()).unwrap_or(0);
                format!(
                    "rank {rank} has no GPU, but rank {other} has {}; `shardplan doctor` on rank {rank}'s machine says why, and --device cpu takes CPUs on all",
                    places.get(other).map_or("one", String::as_str)
                )
            }
            Unfit::Shared(first, second) => format!(
                "ranks {first} and {second} both compute on {}, and NCCL needs one GPU per rank (slices of one GPU count as that GPU): start as many ranks as the machine has GPUs, or give --ranks-per-gpu, and ranks that share one talk through host memory",
                places[*first]
            ),
        }
    }
}

/// Refuses what differs between ranks and must not, naming the first and one that is not as it.
fn alike(
    what: &str,
    said: &[String],
    places: &[String],
    todo: &str,
    same: impl Fn(&str, &str) -> bool,
) -> anyhow::Result<()> {
    let first = said.first().map_or("", String::as_str);
    let Some(other) = said.iter().position(|other| !same(first, other)) else { return Ok(()) };
    let place =
        |rank: usize| places.get(rank).filter(|place| !place.is_empty()).map_or("a CPU", String::as_str);
    bail!(
        "ranks have different {what}: {first} on rank 0 ({}), {} on rank {other} ({}); {todo}",
        place(0),
        said[other],
        place(other)
    )
}

/// Whether two GPUs have as much memory, as they say it, but for what boards of one kind differ by.
fn as_much(one: &str, other: &str) -> bool {
    let bytes =
        |text: &str| text.split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0);
    let (one, other) = (bytes(one), bytes(other));
    (one - other).abs() <= APART * one
}

/// What each rank says, in the order of ranks.
fn gather(host: &HostCollectives, mine: &str) -> anyhow::Result<Vec<String>> {
    let everyone = host.mine(GroupKind::World)?;
    let mut bytes = mine.as_bytes()[..mine.len().min(SAID_BYTES)].to_vec();
    bytes.resize(SAID_BYTES, 0);
    let all = vec![0_u8; SAID_BYTES * host.size(everyone)];
    let mut all = Tensor::f_from_slice(&all)?;
    host.all_gather(everyone, &Tensor::f_from_slice(&bytes)?, &mut all)?;
    let all: Vec<u8> = Vec::try_from(&all)?;
    let text = |part: &[u8]| String::from_utf8_lossy(part).trim_end_matches('\0').to_owned();
    Ok(all.chunks(SAID_BYTES).map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(places: &[&str], may_share: bool, expected: Option<Unfit>) {
        let places: Vec<String> = places.iter().map(|&place| place.to_owned()).collect();
        assert_eq!(unfit(&places, may_share), expected);
        if let Some(unfit) = expected {
            assert!(!unfit.words(&places).is_empty());
        }
    }

    #[test]
    fn boards_of_one_kind_have_about_as_much_memory() {
        assert!(as_much("79.1 GiB", "79.2 GiB") && as_much("139.8 GiB", "139.8 GiB") && as_much("", ""));
        assert!(!as_much("79.1 GiB", "39.4 GiB") && !as_much("79.1 GiB", "93.0 GiB"));
    }

    #[test]
    fn nccl_takes_one_gpu_per_rank() {
        let (a, b) = ("GPU 0000:1b:00.0 of n1", "GPU 0000:43:00.0 of n1");
        let elsewhere = "GPU 0000:1b:00.0 of n2";
        check(&[a, b, elsewhere], false, None);
        check(&["", ""], false, Some(Unfit::NoGpus));
        check(&[a, ""], true, Some(Unfit::WithoutGpu(1)));
        check(&[a, b, a], false, Some(Unfit::Shared(0, 2)));
        check(&[a, a, b, b], true, Some(Unfit::Meant));
        // To share is allowed, not asked for.
        check(&[a, b], true, None);
    }
}
