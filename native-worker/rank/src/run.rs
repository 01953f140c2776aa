//! A rank's life: read the plan, join the world, allocate, step, end.

use std::any::Any;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use planner::Plan;
use planner::layout::{Group, GroupKind, executor_limits};
use planner::nonuniform::RankRole;
use planner::shard::BufferShard;
use planner::shard::fsdp::{computed_with, groups};
use planner::wire::{Event, Joined, Outcome, Resumed, Step};
use planner::{Finding, Severity};
use run_folder::{CHECKPOINTS, Checkpoints, Key, Log};
use sha2::{Digest, Sha256};
use tch::Device;

use crate::arguments::Arguments;
use crate::checkpoint::{Found, Saver, find};
use crate::collectives::host::{HostCollectives, Identity, LastResort, Meeting};
use crate::collectives::{Collectives, GroupId, choice};
use crate::device;
use crate::dump;
use crate::environment::{Environment, derive};
use crate::stop::{self, Stop};
use crate::sys::{self, memory::Tracker, signals};
use crate::train::Trainer;
use crate::{lease, log, say};

/// The most bytes that a plan file may have.
const MAX_PLAN_BYTES: u64 = 64 * 1024 * 1024;

/// Steps at the start of a run whose schedule is recorded as executed: the first warms up, the others show how it goes.
const TRACED_STEPS: u64 = 3;

/// A plan file, checked.
struct Reading {
    /// What ranks compute with.
    plan: Plan,
    /// What they keep, where the plan is for FSDP2 or Megatron-FSDP.
    fsdp: Option<Plan>,
    sha256: String,
}

/// Runs a rank to its end.
///
/// # Errors
/// With one sentence that says what failed.
pub fn run(arguments: &Arguments, cuda: Result<(), String>) -> anyhow::Result<()> {
    // What is said may go to a file, as the log does.
    run_folder::survive_size_limits();
    let environment = derive(&std::env::vars().collect())?;
    for warning in &environment.warnings {
        say(warning);
    }
    let reading = read_plan(&arguments.plan)?;
    let environment = seat(&reading.plan, environment)?;
    if reading.plan.role_of(environment.rank as u64) == Some(RankRole::Inactive) {
        say(&format!("rank {} is on a slot that the plan leaves out, so it ends here", environment.rank));
        return Ok(());
    }
    let device = device::take(arguments, &environment, cuda)?;
    check_torch()?;
    if device == Device::Cpu {
        check_room(reading.kept(), &environment)?;
    }
    if environment.world_size > 1 && std::env::var_os("OMP_NUM_THREADS").is_none() {
        // Ranks that share a machine would otherwise each start a thread per core.
        tch::set_num_threads(1);
    }
    let log = Arc::new(log::open(&arguments.run_dir, environment.rank)?);
    if let Some(launcher) = arguments.launcher {
        let last_resort = last_resort(&log);
        lease::watch(launcher, arguments.lease, move |reason| last_resort(reason))?;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| joined(arguments, &environment, &reading, device, &log)))
        .unwrap_or_else(|panic| Err(anyhow!("a bug in shardplan-rank: {}", said(panic.as_ref()))));
    match outcome {
        Ok((Outcome::Failed, reason)) => {
            log::end(&log, Outcome::Failed, &reason);
            Err(anyhow!(reason))
        }
        Ok((outcome, reason)) => {
            log::end(&log, outcome, &reason);
            Ok(())
        }
        Err(error) => {
            // What fails when the launcher is gone fails because of that: the ranks end one after the other.
            let error = match lease::gone() {
                Some(gone) => anyhow!("{gone}; then {error:#}"),
                None => error,
            };
            log::end(&log, Outcome::Failed, &format!("{error:#}"));
            Err(error)
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

impl Reading {
    /// The plan whose shards ranks keep: the one that is executed.
    fn kept(&self) -> &Plan {
        self.fsdp.as_ref().unwrap_or(&self.plan)
    }

    /// The groups of the ranks, in the order in which all make them.
    fn groups(&self) -> Vec<Group> {
        match &self.fsdp {
            Some(fsdp) => groups(fsdp, &self.plan),
            None => self.plan.groups(),
        }
    }
}

fn read_plan(path: &Path) -> anyhow::Result<Reading> {
    let failed = || format!("reading the plan {}", path.display());
    let length = std::fs::metadata(path).with_context(failed)?.len();
    ensure!(
        length <= MAX_PLAN_BYTES,
        "the plan {} has {length} bytes; a plan has at most {MAX_PLAN_BYTES}",
        path.display()
    );
    let text = std::fs::read_to_string(path).with_context(failed)?;
    let sha256 = hex::encode(Sha256::digest(text.as_bytes()));
    let file = planner::parse_plan(&text).map_err(|findings| refusal(path, &findings))?;
    let resolved = Plan::resolve(&file);
    let Some(plan) = resolved.plan else { return Err(refusal(path, &resolved.findings)) };
    let executed = Plan::resolve(&plan.executed());
    let Some(executed) = executed.plan else { return Err(refusal(path, &executed.findings)) };
    let (plan, fsdp) = match executed.runtime.facts().shards_parameters {
        true => {
            let computed = Plan::resolve(&computed_with(&executed));
            let Some(computed) = computed.plan else { return Err(refusal(path, &computed.findings)) };
            (computed, Some(executed))
        }
        false => (executed, None),
    };
    let limits = executor_limits(&plan);
    if !limits.is_empty() {
        return Err(refusal(path, &limits));
    }
    Ok(Reading { plan, fsdp, sha256 })
}

/// The environment with the rank's number in the whole world. Where GPUs failed, all ranks of the world may have been started,
/// of which some end at once, or only those that go on, numbered without gaps.
fn seat(plan: &Plan, environment: Environment) -> anyhow::Result<Environment> {
    let (whole, started) = (plan.world_size(), environment.world_size as u64);
    if started == whole {
        return Ok(environment);
    }
    let active = if plan.nonuniform.is_some() { plan.active_ranks() } else { Vec::new() };
    ensure!(
        started == active.len() as u64,
        "the plan is for {whole} ranks ({} nodes of {} GPUs{}), but WORLD_SIZE is {started}; start as many ranks as the plan has GPUs{}",
        plan.cluster.nodes,
        plan.cluster.gpus_per_node,
        if active.is_empty() { String::new() } else { format!(", {} of which go on", active.len()) },
        if active.is_empty() { "" } else { ", or as many as go on" }
    );
    let rank = active.get(environment.rank).copied().context("a rank beyond those that go on")?;
    Ok(Environment { rank: usize::try_from(rank)?, world_size: usize::try_from(whole)?, ..environment })
}

fn refusal(path: &Path, findings: &[Finding]) -> anyhow::Error {
    let errors: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| {
            if finding.field.is_empty() {
                finding.message.clone()
            } else {
                format!("{}: {}", finding.field, finding.message)
            }
        })
        .collect();
    anyhow!("the plan {} can't be run: {}", path.display(), errors.join("; "))
}

fn check_torch() -> anyhow::Result<()> {
    let version = sys::torch_version();
    ensure!(
        version == "2.11.0" || version.starts_with("2.11."),
        "this program is built for torch 2.11, but the libtorch that was loaded is {version}; point LD_LIBRARY_PATH at the torch/lib folder of torch 2.11"
    );
    Ok(())
}

/// Refuses a plan whose static state this machine can't hold, before the kernel ends a process for it. On a GPU the
/// allocator says so itself.
fn check_room(plan: &Plan, environment: &Environment) -> anyhow::Result<()> {
    let Some(host) = host_memory() else { return Ok(()) };
    let shards = plan.rank_shards(environment.rank as u64);
    let rank: u64 = shards.buffers.iter().map(BufferShard::gpu_bytes).sum();
    let here = environment.local_world_size as u64;
    ensure!(
        rank.saturating_mul(here) <= host,
        "rank {} keeps {rank} bytes of weights, gradients and optimizer state, and {here} ranks share this machine's {host} bytes; take more machines, a smaller model, or more tensor or pipeline parallelism",
        environment.rank
    );
    Ok(())
}

/// The memory of this machine in bytes, or of the cgroup that this process is in; none where Linux does not say.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = line.split_whitespace().next()?.parse::<u64>().ok()? * 1024;
    let limit =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some(limit.unwrap_or(total).min(total))
}

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

fn joined(
    arguments: &Arguments,
    environment: &Environment,
    reading: &Reading,
    device: Device,
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
        device: device::name(device),
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
    let host = HostCollectives::join(identity, meeting, reading.groups())?;
    let name = joined.host.clone();
    log.append(Event::Joined(joined));
    // From here on a signal asks for an end in good order; before, it simply ends the process.
    signals::listen()?;
    let world = choice::choose(arguments, host, &name, device)?;
    let world = world.as_ref();
    let result = train(arguments, reading, world, device, log);
    match &result {
        Ok(_) => world.finish(),
        Err(error) => world.abort(&format!("{error:#}")),
    }
    result
}

/// Ends the process where the rank's own thread does not: it computes for long, or hangs.
fn last_resort(log: &Arc<Log>) -> LastResort {
    // Threads that outlive the run must not keep its log open.
    let log = Arc::downgrade(log);
    Arc::new(move |reason| {
        if let Some(log) = log.upgrade() {
            log::end(&log, Outcome::Failed, reason);
        }
        say(reason);
        std::process::exit(1);
    })
}

fn train(
    arguments: &Arguments,
    reading: &Reading,
    world: &dyn Collectives,
    device: Device,
    log: &Arc<Log>,
) -> anyhow::Result<(Outcome, String)> {
    let plan = &reading.plan;
    let _inference = tch::no_grad_guard();
    let tracker = if arguments.unmeasured { Tracker::absent() } else { Tracker::install(device)? };
    let everyone = world.mine(GroupKind::World)?;
    let own = Checkpoints::of_run(&arguments.run_dir);
    let held = plan.run.checkpoint.filter(|_| world.leads()).map(|_| own.hold()).transpose()?;
    if held.is_some() {
        own.clean();
    }
    let mut found = resumed(arguments, world, everyone)?;
    world.note("allocating its state");
    let began = Instant::now();
    let mine = plan.of_rank(world.rank() as u64);
    let from = found.as_mut().map(|found| &mut found.source);
    let mut trainer = Trainer::new(&mine, reading.fsdp.as_ref(), world, &tracker, device, from)?;
    // Another run's checkpoint is none of this one's.
    let saved =
        found.as_ref().map(|found| &found.source).filter(|from| from.path().starts_with(own.folder()));
    let saved = saved.map(|from| from.index().step);
    let done = found.map_or(0, |found| {
        let Found { source, passed_over } = found;
        let resumed = Resumed {
            step: source.index().step,
            path: source.path().display().to_string(),
            bytes: source.bytes(),
            seconds: began.elapsed().as_secs_f64(),
            passed_over,
        };
        log.append(Event::Resumed(resumed));
        source.index().step
    });
    log.append(Event::Allocated(trainer.static_memory()));
    let dump = arguments.dump.as_deref();
    if let Some(folder) = dump {
        dump::weights(folder, done, &trainer.state, world)?;
    }
    let mut saver = plan
        .run
        .checkpoint
        .map(|settings| Saver::new(settings, own, world, everyone, reading.kept().file.clone(), log, saved));
    lease::training();
    for step in done + 1..=plan.run.steps {
        world.note(&format!("at the start of step {step}"));
        if let Some(reason) = boundary(&trainer, saver.as_mut(), everyone, &arguments.run_dir, step - 1)? {
            return stopped(&trainer, saver.as_mut(), everyone, reason, step - 1);
        }
        if let Some(units) = trainer.state.units().filter(|_| dump.is_some()) {
            units.watch();
        }
        let result = trainer.step(step, |trainer| match dump {
            Some(folder) => {
                dump::moments(folder, step, &trainer.state, world.rank())?;
                dump::gradients(folder, step, &trainer.state, world)
            }
            None => Ok(()),
        })?;
        let rate = planner::time::rate(plan, result.seconds);
        let record = Step {
            step,
            loss: result.loss,
            grad_norm: result.grad_norm.unwrap_or(0.0),
            loss_scale: result.loss_scale,
            skipped: result.grad_norm.is_none(),
            lr: result.lr,
            tokens: result.tokens,
            seconds: result.seconds,
            phases: result.phases,
            phase_peaks: result.phase_peaks,
            model_tflops: rate.model_tflops,
            mfu: rate.mfu.filter(|_| device::is_the_plans(plan, device)),
            memory: result.memory,
        };
        log.append(Event::Step(record));
        if let Some(evaluated) = trainer.evaluate(step)?
            && world.index(everyone)? == 0
        {
            log.append(Event::Evaluated(evaluated));
        }
        if step <= done + TRACED_STEPS {
            log.append(Event::Trace(result.trace));
        }
        if let Some(folder) = dump {
            dump::weights(folder, step, &trainer.state, world)?;
        }
    }
    let all = plan.run.steps.max(done);
    let failed = save_now(&trainer, saver.as_mut(), all)?;
    // Nobody leaves while another still needs an answer.
    world.barrier(everyone)?;
    Ok(match failed {
        None => (Outcome::Completed, format!("all {} steps are done", plan.run.steps)),
        Some(reason) => (
            Outcome::Failed,
            format!(
                "all {} steps are done, but what they trained is not saved: {reason}; make room and start the run again, which goes \
                 on from its last checkpoint",
                plan.run.steps
            ),
        ),
    })
}

/// What is gone on from: the run's own checkpoint, or that of another run.
fn resumed(
    arguments: &Arguments,
    world: &dyn Collectives,
    everyone: GroupId,
) -> anyhow::Result<Option<Found>> {
    world.note("looking for checkpoints");
    if let Some(found) = find(&arguments.run_dir.join(CHECKPOINTS), false, world, everyone)? {
        return Ok(Some(found));
    }
    arguments.resume.as_deref().map_or(Ok(None), |folder| find(folder, true, world, everyone))
}

/// What all ranks do between two steps: stop, for this reason, or begin a checkpoint, or go on with one.
fn boundary(
    trainer: &Trainer<'_>,
    saver: Option<&mut Saver<'_>>,
    everyone: GroupId,
    folder: &Path,
    done: u64,
) -> anyhow::Result<Option<Stop>> {
    let (due, underway) =
        saver.as_ref().map_or((false, false), |saver| (saver.is_due(done), saver.is_underway()));
    let agreed = stop::agree(trainer.world(), everyone, folder, due, underway)?;
    if let (None, Some(saver)) = (&agreed.stop, saver) {
        if agreed.save {
            saver.begin(trainer, done)?;
        } else if !agreed.saving {
            saver.advance()?;
        }
    }
    Ok(agreed.stop)
}

/// Saves before the end, which a launcher that is gone may wait for. Why it could not, if it could not.
fn save_now(
    trainer: &Trainer<'_>,
    saver: Option<&mut Saver<'_>>,
    done: u64,
) -> anyhow::Result<Option<String>> {
    let Some(saver) = saver else { return Ok(None) };
    trainer.world().note("saving what it has trained");
    let _saving = lease::saving();
    saver.save_now(trainer, done)
}

/// Ends all ranks after the same step.
fn stopped(
    trainer: &Trainer<'_>,
    mut saver: Option<&mut Saver<'_>>,
    everyone: GroupId,
    why: Stop,
    done: u64,
) -> anyhow::Result<(Outcome, String)> {
    let steps = trainer.plan().run.steps;
    let failed = save_now(trainer, saver.as_deref_mut(), done)?;
    trainer.world().barrier(everyone)?;
    let kept = match (saver, failed) {
        (None, _) => "it saves no checkpoints, so nothing of the training is kept".to_owned(),
        (Some(_), Some(reason)) => {
            format!("what it trained since its last checkpoint is not saved: {reason}")
        }
        (Some(_), None) if done == 0 => "nothing was trained yet".to_owned(),
        (Some(_), None) => format!("step {done} is saved, from which it can go on"),
    };
    Ok(match why {
        Stop::Asked(reason) => {
            let after = format!("{reason} after {done} of {steps} steps");
            (Outcome::Stopped, if saves_nothing(trainer) { after } else { format!("{after}; {kept}") })
        }
        Stop::LauncherGone => {
            let gone = lease::gone().unwrap_or_else(|| "the launcher of another rank is gone".to_owned());
            (Outcome::Failed, format!("{gone}; all ranks ended after {done} of {steps} steps; {kept}"))
        }
    })
}

fn saves_nothing(trainer: &Trainer<'_>) -> bool {
    trainer.plan().run.checkpoint.is_none()
}
