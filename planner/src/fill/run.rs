//! What of a run can't be as a plan file says it, whoever trains.

use super::filler::Filler;
use crate::finding::Finding;
use crate::json::value_of;
use crate::plan::{RunSettings, wrong_blend};
use crate::settings::LrSchedule;
use crate::wire::DataFile;

/// A blend that can't be made is refused before anybody opens it.
pub(super) fn refuse_wrong_blend(fill: &mut Filler<'_>, path: &str, data: &DataFile) {
    if let Some((field, why)) = wrong_blend(data, path) {
        let value = value_of(data);
        fill.findings.push(Finding::error(path, value, format!("{field} {why}")).rule("shares of a blend"));
    }
}

/// A falling rate whose end is above its start, or that has ended before it is warmed up.
pub(super) fn refuse_wrong_rate(fill: &mut Filler<'_>, run: &RunSettings) {
    let RunSettings { lr, min_lr, lr_schedule, warmup_steps, lr_decay_steps, .. } = run;
    if *lr_schedule == LrSchedule::Constant {
        return;
    }
    // Without a number of its own the fall ends with the run, and a short trial of a long warm-up is a good one.
    let is_own = !fill.assumed.iter().any(|field| field == "run.lr_decay_steps");
    if is_own && *warmup_steps > 0 && lr_decay_steps <= warmup_steps {
        let message = format!(
            "the rate would not fall but drop: it is at its end after {lr_decay_steps} steps and warmed up after run.warmup_steps {warmup_steps}; set run.lr_decay_steps above that, for the warm-up is a part of it"
        );
        fill.findings.push(
            Finding::error("run.lr_decay_steps", *lr_decay_steps, message)
                .rule("Megatron-Core OptimizerParamScheduler"),
        );
    }
    if min_lr > lr {
        let message = format!(
            "the rate would rise: it falls from run.lr {lr} down to {min_lr}; set run.min_lr below run.lr, or run.lr_schedule to constant"
        );
        fill.findings.push(
            Finding::error("run.min_lr", *min_lr, message).rule("Megatron-Core OptimizerParamScheduler"),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::finding::Severity;
    use crate::parse::parse_plan;
    use crate::plan::Plan;

    fn findings(run: &Value) -> Vec<(String, String)> {
        let file = json!({"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"},
            "runtime": "native", "run": run});
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        let errors = resolved.findings.into_iter().filter(|finding| finding.severity == Severity::Error);
        errors.map(|finding| (finding.field, finding.message)).collect()
    }

    #[test]
    fn a_rate_that_ends_before_it_is_warmed_up_is_refused() {
        let rate = |schedule: &str, warmup: u64, decay: Option<u64>| {
            findings(
                &json!({"steps": 5, "lr_schedule": schedule, "warmup_steps": warmup, "lr_decay_steps": decay}),
            )
        };
        for schedule in ["linear", "cosine"] {
            for decay in [1, 99, 100] {
                let found = rate(schedule, 100, Some(decay));
                assert!(
                    matches!(&found[..], [(field, why)] if field == "run.lr_decay_steps" && why.contains("drop")),
                    "{found:?}"
                );
            }
            // The last of several steps, a rate that only falls, and a trial of a long warm-up.
            for (warmup, decay) in [(100, Some(101)), (0, Some(1)), (100, None)] {
                assert_eq!(rate(schedule, warmup, decay), [], "{schedule} {warmup} {decay:?}");
            }
        }
        assert_eq!(rate("constant", 100, Some(50)), []);
    }

    #[test]
    fn blends_of_nothing_are_refused_wherever_data_is_named() {
        let text = |path: &str| json!({"kind": "text", "path": path});
        let blend = |weights: &[f64]| {
            let part = |(number, weight): (usize, &f64)| json!({"weight": weight, "data": text(&number.to_string())});
            json!({"kind": "blend", "parts": weights.iter().enumerate().map(part).collect::<Vec<_>>()})
        };
        let within = json!({"kind": "blend", "parts": [{"weight": 1, "data": blend(&[1.0, 0.0])}]});
        for (data, said) in [
            (blend(&[]), ".parts is empty"),
            (blend(&[1.0, 0.0]), ".parts[1].weight is 0; it must be above 0"),
            (blend(&[1.0, 1e-7]), ".parts[1].weight is 0.0000001, less than one sequence"),
            (within, ".parts[0].data.parts[1].weight is 0"),
        ] {
            for (field, run) in [
                ("run.data", json!({"data": data})),
                ("run.evaluation.data", json!({"data": text("a"), "evaluation": {"data": data}})),
            ] {
                let found = findings(&run);
                assert!(
                    matches!(&found[..], [(at, why)] if at == field && why.contains(&format!("{field}{said}"))),
                    "{run}: {found:?}"
                );
            }
        }
        assert_eq!(findings(&json!({"data": blend(&[1.0, 3.0])})), []);
    }

    #[test]
    fn a_falling_rate_does_not_rise() {
        let rate = |schedule: &str, lr: f64, min_lr: f64| {
            findings(&json!({"lr": lr, "min_lr": min_lr, "lr_schedule": schedule}))
        };
        for schedule in ["linear", "cosine"] {
            let found = rate(schedule, 1e-4, 1e-3);
            assert!(
                matches!(&found[..], [(field, why)] if field == "run.min_lr" && why.contains("rise")),
                "{found:?}"
            );
            assert_eq!(rate(schedule, 1e-3, 1e-3), []);
            // The usual rate, which nobody says.
            assert_eq!(findings(&json!({"min_lr": 1e-3, "lr_schedule": schedule})).len(), 1);
        }
        assert_eq!(rate("constant", 1e-4, 1e-3), []);
    }
}
