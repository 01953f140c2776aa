use serde_json::json;

use super::{Measured, as_it_ran, calibrate, mean_seconds, parse, probes, typical_seconds, unseen};
use crate::answer::estimate;
use crate::plan::Plan;
use crate::settings::Precision;
use crate::time::PARTS;
use crate::wire::{Calibration, PlanFile};

/// Factors of a machine that is none.
const MADE_UP: [f64; PARTS.len()] = [7.0, 0.8, 1.3, 0.5, 0.9, 0.6, 1.4, 0.8, 1.2, 1.1, 1.5, 8.0, 0.4];

/// A made-up machine of two cores.
fn machine(factors: [f64; PARTS.len()]) -> Calibration {
    Calibration {
        name: "made up".to_owned(),
        gpu: "cpu".to_owned(),
        profile: "native-cpu".to_owned(),
        dtype: Precision::Bf16,
        cores: 2,
        factors: PARTS.iter().zip(factors).map(|(part, factor)| (part.name.to_owned(), factor)).collect(),
        spread: 0.1,
    }
}

fn seconds(file: &PlanFile, calibration: &Calibration) -> f64 {
    let mut file = file.clone();
    file.software.calibration = Some(Box::new(calibration.clone()));
    let answer = estimate(&file);
    answer.time.unwrap_or_else(|| panic!("{:?}", answer.findings)).step_seconds
}

fn measured(calibration: &Calibration, noise: impl Fn(usize) -> f64) -> Vec<Measured> {
    let runs = probes("cpu", 4).into_iter().enumerate().map(|(at, probe)| Measured {
        name: probe.name.to_owned(),
        seconds: seconds(&probe.file, calibration) * noise(at),
        file: probe.file,
    });
    runs.collect()
}

#[test]
fn every_probe_is_a_plan_that_the_executor_runs() {
    for gpu in ["cpu", "h100-sxm"] {
        for (ranks, count) in [(1, 15), (2, 21), (8, 24), (0, 10)] {
            let found = if ranks == 0 { unseen(gpu) } else { probes(gpu, ranks) };
            assert_eq!(found.len(), count);
            for probe in found {
                let resolved = Plan::resolve(&probe.file);
                let plan = resolved.plan.unwrap_or_else(|| panic!("{} {:?}", probe.name, resolved.findings));
                assert_eq!(crate::rules::executor_limits(&plan), [], "{}", probe.name);
                assert!(plan.world_size() <= ranks.max(1) && estimate(&probe.file).time.is_some());
            }
        }
    }
}

#[test]
fn the_machine_behind_measured_steps_is_found() {
    let truth = machine(MADE_UP);
    let found = calibrate(&measured(&truth, |_| 1.0), "a test", 2).unwrap();
    assert!(found.fit.median_before > 0.2, "{:?}", found.fit);
    assert!(found.fit.median < 0.01, "{found:#?}");
    // A layout that no probe has.
    let file = probes("cpu", 4).swap_remove(15).file;
    let other = crate::parse::with_value(&file, "cluster.gpus_per_node", &json!(4)).unwrap();
    let other = crate::parse::with_value(&other, "training.global_batch_size", &json!(8)).unwrap();
    let error = seconds(&other, &found.calibration) / seconds(&other, &truth) - 1.0;
    assert!(error.abs() < 0.1, "{error}");
}

#[test]
fn noise_is_not_learned() {
    let truth = machine(MADE_UP);
    let noisy = calibrate(&measured(&truth, |at| if at % 2 == 0 { 1.1 } else { 0.9 }), "a test", 2).unwrap();
    let held_out = noisy.fit.median_held_out.unwrap();
    assert!(held_out > noisy.fit.median && noisy.calibration.spread >= 0.1, "{:?}", noisy.fit);
}

#[test]
fn one_run_moves_little_and_says_so() {
    let truth = machine(PARTS.map(|part| if part.name == "compute" { 2.0 } else { 1.0 }));
    let mut runs = measured(&truth, |_| 1.0);
    runs.truncate(1);
    let found = calibrate(&runs, "one run", 2).unwrap();
    assert_eq!((found.fit.points, found.fit.median_held_out), (1, None));
    assert!(found.fit.median < 0.05 && found.calibration.spread >= 0.3, "{found:?}");
}

#[test]
fn what_can_not_be_fitted_is_refused() {
    let truth = machine([1.0; PARTS.len()]);
    let runs = measured(&truth, |_| 1.0);
    let refused = |runs: &[Measured]| calibrate(runs, "", 2).unwrap_err().message;
    assert!(refused(&[]).contains("no measured step"));
    let mut endless = runs.clone();
    endless[0].seconds = f64::NAN;
    assert!(refused(&endless).contains("NaN"));
    let mut mixed = runs.clone();
    mixed[1].file.cluster.gpu = "h100-sxm".to_owned();
    assert!(refused(&mixed).contains("calibrate each apart"));
    let mut broken = runs;
    broken[0].file.layout.tp = Some(3);
    assert!(refused(&broken).contains("has errors"));
}

#[test]
fn a_profile_is_read_back_and_a_wrong_one_is_named() {
    let truth = machine([2.0; PARTS.len()]);
    let found = calibrate(&measured(&truth, |_| 1.0), "a test", 2).unwrap();
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(parse(&text).unwrap(), found);
    for (text, word) in [
        ("{}", "not a calibration profile"),
        ("[]", "not a calibration profile"),
        (&text.replacen("\"version\":1", "\"version\":2", 1), "version 1"),
        (&" ".repeat(2 << 20), "at most"),
    ] {
        let message = parse(text).unwrap_err().message;
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn a_calibration_in_a_plan_is_used_where_it_holds() {
    let file = probes("cpu", 1).swap_remove(0).file;
    let with = |change: &dyn Fn(&mut Calibration)| {
        let mut calibration = machine([2.0; PARTS.len()]);
        change(&mut calibration);
        let mut file = file.clone();
        file.software.calibration = Some(Box::new(calibration));
        estimate(&file)
    };
    let plain = estimate(&file).time.unwrap();
    let used = with(&|_| {}).time.unwrap();
    assert_eq!((used.calibration.as_deref(), plain.calibration), (Some("made up"), None));
    assert!(used.interval_seconds[1] / used.step_seconds < plain.interval_seconds[1] / plain.step_seconds);
    let unused = with(&|calibration| calibration.gpu = "h100-sxm".to_owned());
    assert_eq!(unused.time.unwrap().step_seconds, plain.step_seconds);
    assert!(unused.findings.iter().any(|finding| finding.message.contains("is not used")));
    let older = with(&|calibration| {
        calibration.factors.remove("tensor");
    });
    assert!(older.time.unwrap().calibration.is_some());
    assert!(older.findings.iter().any(|finding| finding.message.contains("no factor for tensor")));
    let refused: [&dyn Fn(&mut Calibration); 4] = [
        &|calibration| calibration.spread = f64::NAN,
        &|calibration| calibration.cores = u64::MAX,
        &|calibration| *calibration.factors.get_mut("compute").unwrap() = 0.0,
        &|calibration| {
            calibration.factors.insert("compte".to_owned(), 1.0);
        },
    ];
    for change in refused {
        assert!(with(change).time.is_none());
    }
}

#[test]
fn ranks_on_cpus_share_their_node() {
    let calibration = machine([1.0; PARTS.len()]);
    let at = |ranks: u64| {
        let file = probes("cpu", 2).swap_remove(15).file;
        let file = crate::parse::with_value(&file, "cluster.gpus_per_node", &json!(ranks)).unwrap();
        let file = crate::parse::with_value(&file, "training.global_batch_size", &json!(8)).unwrap();
        seconds(&file, &calibration)
    };
    // The same work on the same cores, and more to communicate.
    assert!(at(4) > at(2) && at(2) > 0.8 * at(1), "{} {} {}", at(1), at(2), at(4));
}

/// Seconds that a part adds to a probe's step when its factor goes from 1 to 2, and from 2 to 3.
fn added(name: &str, probe: &str, settings: &[(&str, u64)]) -> [f64; 2] {
    let mut file = probes("cpu", 1).into_iter().find(|one| one.name == probe).unwrap().file;
    for (path, value) in settings {
        file = crate::parse::with_value(&file, path, &json!(value)).unwrap();
    }
    let at =
        |factor| seconds(&file, &machine(PARTS.map(|part| if part.name == name { factor } else { 1.0 })));
    [at(2.0) - at(1.0), at(3.0) - at(2.0)]
}

#[test]
fn nothing_hides_what_a_cpu_launches() {
    for (part, probe) in [
        ("host", "a plain model"),
        ("experts", "experts"),
        ("expert", "many experts"),
        ("tensor", "launches: many thin layers"),
    ] {
        let [first, second] = added(part, probe, &[]);
        assert!(first > 1e-4 && (second / first - 1.0).abs() < 1e-6, "{part}: {first} {second}");
    }
    // Each micro batch launches everything again; the optimizer does not.
    let twice = |part: &str| {
        let settings = [("training.global_batch_size", 16)];
        added(part, "a plain model", &settings)[0] / added(part, "a plain model", &[])[0]
    };
    assert!((twice("host") - 2.0).abs() < 1e-6 && (twice("tensor") - 1.0).abs() < 1e-6);
}

#[test]
fn attention_on_a_cpu_goes_block_by_block() {
    let at = |tokens: u64| {
        added("attention_blocks", "attention of many heads", &[("training.seq_len", tokens)])[0]
    };
    let blocks = |tokens: u64| (at(tokens) / at(32)).round();
    assert_eq!([33, 64, 65, 191].map(blocks), [2.0, 2.0, 3.0, 6.0]);
    assert_eq!([192, 193, 767].map(blocks), [3.0, 4.0, 12.0]);
    // Heads of 16 elements and 16 tokens: products so small that oneDNN is not asked.
    assert_eq!((at(16), at(8)), (0.0, 0.0));
}

#[test]
fn a_run_is_taken_as_it_ran() {
    let file = probes("h100-sxm", 2).swap_remove(15).file;
    let ran = as_it_ran(&file, "cpu", true);
    assert_eq!(
        (ran.cluster.gpu.as_str(), ran.cluster.nodes, ran.cluster.gpus_per_node),
        ("cpu", Some(1), Some(2))
    );
    let steps = [(1, 9.0), (2, 1.0), (3, 3.0), (4, f64::NAN), (5, 2.0)];
    assert_eq!(typical_seconds(steps), Some(2.5));
    assert_eq!(typical_seconds([(1, 9.0)]), Some(9.0));
    assert_eq!(typical_seconds([]), None);
    assert!((mean_seconds(&[0.2, 0.8]).unwrap() - 0.4).abs() < 1e-12);
    assert_eq!(mean_seconds(&[]), None);
}
