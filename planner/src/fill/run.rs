//! What of a run can't be as a plan file says it, whoever trains.

use super::filler::Filler;
use crate::finding::Finding;
use crate::plan::{RunSettings, wrong_blend};
use crate::settings::LrSchedule;
use crate::wire::DataFile;

/// A blend that can't be made is refused before anybody opens it.
pub(super) fn refuse_wrong_blend(fill: &mut Filler<'_>, path: &str, data: &DataFile) {
    if let Some((field, why)) = wrong_blend(data, path) {
        let value = serde_json::to_value(data).unwrap_or_default();
        fill.findings.push(Finding::error(path, value, format!("{field} {why}")).rule("shares of a blend"));
    }
}

/// A falling rate whose end is above its start.
pub(super) fn refuse_rising_rate(fill: &mut Filler<'_>, run: &RunSettings) {
    let RunSettings { lr, min_lr, lr_schedule, .. } = run;
    if *lr_schedule != LrSchedule::Constant && min_lr > lr {
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
