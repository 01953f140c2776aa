//! `--check-nccl`: NCCL in a world of one rank, on the device of this machine. Elsewhere a group of one does without a transport
//! (`Collective::alone`); here everything that a rank does with NCCL goes through it: the library and its functions, its
//! settings, communicators and parts of them, each collective in each element type on libtorch's stream and beside it, and
//! both ends of a communicator. So a machine with a single GPU shows most of what can be off.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tch::{Cuda, Device, Kind, Tensor};

use crate::check_kernels::Found;
use crate::collectives::Reduce;
use crate::collectives::nccl::KINDS;
use crate::sys::cuda::{self, DEFAULT, Stream};
use crate::sys::nccl::{Call, Communicator, Nccl, State};
use crate::sys::{first_lines, torch_version};

/// How long NCCL may take for anything.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Elements of a tensor: no multiple of what kernels take at once.
const ELEMENTS: i64 = 100_003;
/// Values are whole numbers below this, which all element types have.
const VALUES: i64 = 97;

/// Takes the first GPU and has NCCL do everything there. With a `library` to take for NCCL there need be no GPU. `cuda` says whether
/// libtorch_cuda is open.
///
/// # Errors
/// When there is no GPU, or no NCCL. What NCCL does not do is a row of what was found.
pub fn check(library: Option<&Path>, cuda: Result<(), String>) -> anyhow::Result<Found> {
    let device = device(library, cuda)?;
    let nccl = Nccl::open(library).context("install a torch with CUDA, which brings NCCL")?;
    let mut rows = Vec::new();
    if let Err(error) = everything(&nccl, device, &mut rows) {
        // What comes after would fail for the same reason, or wait for as long again.
        let why = first_lines(&format!("{error:#}"));
        rows.push(json!({"check": "all that follows", "error": why, "within": false}));
    }
    let within = rows.iter().all(|row| row["within"] == true);
    let found = json!({
        "device": format!("{device:?}"),
        "torch": torch_version(),
        "nccl": nccl.version(),
        "revokes": nccl.revokes(),
        "checks": rows,
    });
    Ok(Found { within, json: format!("{found}\n") })
}

fn device(library: Option<&Path>, cuda: Result<(), String>) -> anyhow::Result<Device> {
    if Cuda::is_available() {
        cuda::Cuda::loaded()?.set_device(0)?;
        return Ok(Device::Cuda(0));
    }
    match cuda {
        _ if library.is_some() => Ok(Device::Cpu),
        Err(reason) => bail!("NCCL needs a GPU, and libtorch_cuda.so can't be opened: {reason}"),
        Ok(()) => bail!("NCCL needs a GPU, and libtorch sees none; `shardplan doctor` says why"),
    }
}

/// Gives up after a while.
fn patience() -> impl Fn() -> anyhow::Result<()> {
    let until = Instant::now() + TIMEOUT;
    move || {
        ensure!(Instant::now() < until, "not done within {} s", TIMEOUT.as_secs());
        Ok(())
    }
}

fn everything(nccl: &Arc<Nccl>, device: Device, rows: &mut Vec<Value>) -> anyhow::Result<()> {
    let connect = || nccl.connect(nccl.unique_id()?, 0, 1, &patience());
    let whole = connect()?;
    row("connecting", true, rows);
    let part = nccl.split(&whole, Some((0, 0)), &patience())?.context("splitting made no communicator")?;
    row("splitting", true, rows);
    row("splitting without this rank", nccl.split(&whole, None, &patience())?.is_none(), rows);
    let on = |communicator, stream, whose| On { nccl, device, communicator, stream, whose };
    let places =
        [on(&whole, DEFAULT, "libtorch's stream"), on(&part, nccl.cuda.stream()?, "a stream beside it")];
    for place in &places {
        for kind in KINDS {
            place.all(kind, rows)?;
        }
    }
    // The part first: it came from the whole.
    for (name, communicator) in [("a part takes leave", &part), ("the whole takes leave", &whole)] {
        row(name, communicator.free(&patience()), rows);
    }
    let other = connect()?;
    on(&other, DEFAULT, "what is aborted").all(Kind::Float, rows)?;
    other.abort();
    row("aborting", matches!(other.state(), State::Failed(_)), rows);
    Ok(())
}

fn row(check: &str, within: bool, rows: &mut Vec<Value>) {
    rows.push(json!({"check": check, "within": within}));
}

/// Where calls are made.
struct On<'a> {
    nccl: &'a Arc<Nccl>,
    device: Device,
    communicator: &'a Communicator,
    stream: Stream,
    whose: &'a str,
}

impl On<'_> {
    /// All that the executor asks of NCCL, in one element type. In a world of one each result is what was given.
    fn all(&self, kind: Kind, rows: &mut Vec<Value>) -> anyhow::Result<()> {
        let given = Tensor::f_arange(ELEMENTS, (Kind::Int64, self.device))?;
        let given = given.f_remainder(VALUES)?.f_to_kind(kind)?;
        let own = || given.f_to_dtype(kind, false, true);
        let empty = || given.f_zeros_like();
        let mut one = |name: &str, call: &Call<'_>, filled: &[&Tensor]| -> anyhow::Result<()> {
            let what = format!("{name}, {kind:?}, on {}", self.whose);
            let equal = self.carry_out(&what, call, filled, &given).with_context(|| what.clone())?;
            row(&what, equal, rows);
            Ok(())
        };
        for (name, reduce) in [("all_reduce, sum", Reduce::Sum), ("all_reduce, max", Reduce::Max)] {
            let tensor = own()?;
            one(name, &Call::AllReduce(&tensor, reduce), &[&tensor])?;
        }
        let output = empty()?;
        one("all_gather", &Call::AllGather(&given, &output), &[&output])?;
        let output = own()?;
        let part = output.f_narrow(0, 0, ELEMENTS)?;
        one("all_gather in place", &Call::AllGather(&part, &output), &[&output])?;
        let output = empty()?;
        one("reduce_scatter", &Call::ReduceScatter(&given, &output), &[&output])?;
        let input = own()?;
        let part = input.f_narrow(0, 0, ELEMENTS)?;
        one("reduce_scatter in place", &Call::ReduceScatter(&input, &part), &[&part])?;
        let parts = [(0, own()?), (0, own()?)];
        one("reduce", &Call::ReduceEach(&parts), &[&parts[0].1, &parts[1].1])?;
        let tensor = own()?;
        one("broadcast", &Call::Broadcast(&tensor, 0), &[&tensor])?;
        let parts = [(0, own()?), (0, own()?)];
        one("broadcast, each", &Call::BroadcastEach(&parts), &[&parts[0].1, &parts[1].1])?;
        let (sends, receives) = ([own()?], [empty()?]);
        one("all_to_all", &Call::AllToAll(&sends, &receives), &[&receives[0]])?;
        let (sends, receives) = ([own()?, own()?], [empty()?, empty()?]);
        one("exchange", &Call::Exchange(0, &sends, &receives), &[&receives[0], &receives[1]])
    }

    /// Whether a call fills tensors with what was given.
    fn carry_out(
        &self,
        what: &str,
        call: &Call<'_>,
        filled: &[&Tensor],
        given: &Tensor,
    ) -> anyhow::Result<bool> {
        let patience = patience();
        let flight = self.nccl.enqueue(call, self.communicator, self.stream, what, &patience)?;
        // The device is not waited for without an end, which it may never come to.
        while !flight.span().done()? {
            patience()?;
            if let State::Failed(reason) = self.communicator.state() {
                bail!("NCCL failed: {reason}");
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        flight.span().hold_default()?;
        filled.iter().try_fold(true, |equal, filled| Ok(equal && filled.f_equal(given)?))
    }
}
