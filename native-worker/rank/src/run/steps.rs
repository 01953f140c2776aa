//! The training: state, then step after step, with what is agreed between two of them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use planner::layout::GroupKind;
use planner::wire::{Event, Outcome, Resumed, Step};
use run_folder::{CHECKPOINTS, Checkpoints, Log};
use tch::Device;

use super::preflight::Reading;
use crate::arguments::Arguments;
use crate::checkpoint::{Found, Saver, find};
use crate::collectives::{Collectives, GroupId};
use crate::stop::{self, Stop};
use crate::sys::memory::Tracker;
use crate::train::Trainer;
use crate::{TrainedByAnother, device, dump, lease, notice};

/// Steps at the start of a run whose schedule is recorded as executed: the first warms up, the others show how it goes.
const TRACED_STEPS: u64 = 3;
/// How long an attempt that Slurm gave up, on a node that it can't ask, may take to end after the next has begun.
const OTHERS_END: Duration = Duration::from_secs(60);

/// Trains from where a checkpoint ends, if there is one, to the last step or a stop.
pub(super) fn train(
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
    let held = plan.run.checkpoint.filter(|_| world.leads()).map(|_| held(&own)).transpose()?;
    if held.as_ref().is_some_and(Option::is_some) {
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
        let rate = planner::time::rate(plan, result.record.seconds);
        log.append(Event::Step(Step {
            model_tflops: rate.model_tflops,
            mfu: rate.mfu.filter(|_| device::is_the_plans(plan, device)),
            ..result.record
        }));
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
    trainer.state.have_all_weights(world)?;
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

/// Takes the folder of checkpoints for this run alone; none where the filesystem has no locks, which is said.
fn held(own: &Checkpoints) -> anyhow::Result<Option<impl Sized + use<>>> {
    let held = own.hold_within(OTHERS_END).map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => TrainedByAnother(error.to_string()).into(),
        _ => anyhow::Error::from(error),
    })?;
    if held.is_none() {
        notice(&format!(
            "warning: the filesystem of {} has no locks, so nothing but you keeps a second run from writing there",
            own.folder().display()
        ));
    }
    Ok(held)
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
    mut saver: Option<&mut Saver<'_>>,
    everyone: GroupId,
    folder: &Path,
    done: u64,
) -> anyhow::Result<Option<Stop>> {
    let (due, underway) =
        saver.as_mut().map_or((false, false), |saver| (saver.is_due(done), saver.is_underway()));
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
    trainer.state.have_all_weights(trainer.world())?;
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
        Stop::LauncherGone(launcher) => {
            let gone = lease::sentence(launcher);
            (Outcome::Failed, format!("{gone}; all ranks ended after {done} of {steps} steps; {kept}"))
        }
    })
}

fn saves_nothing(trainer: &Trainer<'_>) -> bool {
    trainer.plan().run.checkpoint.is_none()
}
