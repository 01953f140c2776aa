//! What ranks talk by: the same for all, and nothing slower than was asked for without a word.

use anyhow::{bail, ensure};
use planner::layout::GroupKind;
use tch::{Device, Tensor};

use super::host::HostCollectives;
use super::nccl::NcclCollectives;
use super::{Collectives, Reduce};
use crate::arguments::{Arguments, CollectivesChoice};
use crate::notice;
use crate::sys::cuda::Cuda;
use crate::sys::nccl::Nccl;

/// Bytes in which a rank says where it computes.
const PLACE_BYTES: usize = 128;

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
            Ok(Box::new(NcclCollectives::new(host, nccl, device)?))
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
    let mine = match device {
        Device::Cuda(index) => format!("GPU {} of {name}", Cuda::loaded()?.bus_id(index)?),
        _ => String::new(),
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
    let opened = Nccl::open(library);
    let mut lacking = Tensor::f_from_slice(&[i64::from(opened.is_err())])?;
    host.all_reduce(everyone, Reduce::Max, &mut lacking)?;
    let nccl = opened.map_err(|error| {
        error.context(format!("rank {} has GPUs to talk between, but no NCCL", host.rank())).context(
            "ranks can't talk by NCCL; install a torch with CUDA, which brings it, or give --collectives host, which is slower",
        )
    })?;
    ensure!(lacking.f_int64_value(&[0])? == 0, "another rank can't open NCCL; its own message says why");
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

/// What each rank says, in the order of ranks.
fn gather(host: &HostCollectives, mine: &str) -> anyhow::Result<Vec<String>> {
    let everyone = host.mine(GroupKind::World)?;
    let mut bytes = mine.as_bytes()[..mine.len().min(PLACE_BYTES)].to_vec();
    bytes.resize(PLACE_BYTES, 0);
    let all = vec![0_u8; PLACE_BYTES * host.size(everyone)];
    let mut all = Tensor::f_from_slice(&all)?;
    host.all_gather(everyone, &Tensor::f_from_slice(&bytes)?, &mut all)?;
    let all: Vec<u8> = Vec::try_from(&all)?;
    let text = |part: &[u8]| String::from_utf8_lossy(part).trim_end_matches('\0').to_owned();
    Ok(all.chunks(PLACE_BYTES).map(text).collect())
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
