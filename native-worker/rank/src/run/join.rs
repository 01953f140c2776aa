//! Meeting the other ranks: who this one is, and what they must have in common.

use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use planner::wire::{Event, Joined, Outcome};
use run_folder::{Key, Log};
use sha2::{Digest, Sha256};
use tch::Device;

use super::preflight::Reading;
use super::steps::train;
use crate::arguments::Arguments;
use crate::collectives::control::Meeting;
use crate::collectives::host::HostCollectives;
use crate::collectives::link::LastResort;
use crate::collectives::link::identity::Identity;
use crate::collectives::{Collectives, choice};
use crate::environment::Environment;
use crate::sys::{self, signals};
use crate::{device, log, notice};

/// What tells this run apart from another on the same port: the run folder's name and the Slurm job.
fn run_id(folder: &Path, environment: &Environment) -> anyhow::Result<String> {
    let folder =
        folder.canonicalize().with_context(|| format!("the run folder {} is not there", folder.display()))?;
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(if environment.job.is_empty() { name } else { format!("{name} (job {})", environment.job) })
}

/// The version of this program, and which build of it: two may have one version and differ. Read once for all plans of a process.
fn build() -> anyhow::Result<&'static str> {
    static BUILD: OnceLock<String> = OnceLock::new();
    if let Some(build) = BUILD.get() {
        return Ok(build);
    }
    let mut file = std::fs::File::open("/proc/self/exe").context("reading this program's own file")?;
    let mut hash = Sha256::new();
    let mut part = vec![0; 1 << 16];
    loop {
        match file.read(&mut part).context("reading this program's own file")? {
            0 => break,
            count => hash.update(&part[..count]),
        }
    }
    let digest = hex::encode(hash.finalize());
    Ok(BUILD.get_or_init(|| format!("{} (build {})", env!("CARGO_PKG_VERSION"), &digest[..12])))
}

/// Joins the world, trains, and leaves it: in good order, or with the others told why not.
pub(super) fn joined(
    arguments: &Arguments,
    environment: &Environment,
    reading: &Reading,
    device: anyhow::Result<Device>,
    log: &Arc<Log>,
) -> anyhow::Result<(Outcome, String)> {
    let identity = Identity {
        run: run_id(&arguments.run_dir, environment)?,
        binary: build()?.to_owned(),
        torch: sys::torch_version(),
        plan_sha256: reading.sha256.clone(),
        rank: environment.rank,
        world_size: environment.world_size,
        host: nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        pid: std::process::id(),
        port: 0,
    };
    let joined = Joined {
        rank: identity.rank as u64,
        world_size: identity.world_size as u64,
        attempt: environment.attempt,
        host: identity.host.clone(),
        pid: identity.pid,
        device: device.as_ref().map_or_else(|_| "none".to_owned(), |&device| device::name(device)),
        torch: identity.torch.clone(),
        plan_sha256: identity.plan_sha256.clone(),
    };
    let active = reading.plan.active_ranks();
    let members: Vec<usize> = active.into_iter().map(usize::try_from).collect::<Result<_, _>>()?;
    let meeting = Meeting {
        key: (members.len() > 1).then(|| Key::of_run(&arguments.run_dir)).transpose()?,
        members,
        address: environment.master_addr.clone(),
        port: environment.master_port,
        timeout: arguments.timeout,
        last_resort: Some(last_resort(log)),
    };
    let host = HostCollectives::join(identity, meeting, reading.groups());
    // Those that have come hear why it does not go on; where nobody has, this is still what is wrong here.
    let device = device.inspect_err(|error| {
        if let Ok(host) = &host {
            host.abort(&format!("{error:#}"));
        }
    })?;
    let host = host?;
    let name = joined.host.clone();
    log.append(Event::Joined(joined));
    // From here on a signal asks for an end in good order; before, it simply ends the process.
    signals::listen()?;
    let world = choice::choose(arguments, host, &name, device, &reading.kept().beside())?;
    let world = world.as_ref();
    let result = train(arguments, reading, world, device, log);
    match &result {
        Ok(_) => world.finish(),
        Err(error) => world.abort(&format!("{error:#}")),
    }
    result
}

/// Ends the process where the rank's own thread does not: it computes for long, or hangs. Nothing is run that libraries have
/// left to be done at the end, for a library is what may hang, there too.
pub(super) fn last_resort(log: &Arc<Log>) -> LastResort {
    // Threads that outlive the run must not keep its log open.
    let log = Arc::downgrade(log);
    Arc::new(move |reason| {
        if let Some(log) = log.upgrade() {
            log::end(&log, Outcome::Failed, reason);
        }
        notice(reason);
        sys::end_process(1);
    })
}
