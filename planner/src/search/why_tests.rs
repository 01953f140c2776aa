use serde_json::{Value, json};

use super::tests::whole;
use super::*;
use crate::parse::parse_plan;

fn search(preset: &str, cluster: Value, more: Value) -> Search {
    let mut file = json!({"version": 1, "model": {"preset": preset}, "cluster": cluster, "choose": "all"});
    for (key, entry) in more.as_object().unwrap() {
        file[key] = entry.clone();
    }
    let choice = Choice::of(&parse_plan(&file.to_string()).unwrap()).unwrap().unwrap();
    Search::new(&choice.request).unwrap()
}

fn nodes(count: u64) -> Value {
    json!({"gpu": "h100-sxm", "nodes": count})
}

#[test]
fn what_is_compared_is_the_best_of_all_that_is_as_somebody_says() {
    let cases = [
        ("qwen3-30b-a3b", nodes(4), json!({"training": {"global_batch_size": 64}})),
        ("llama-3-70b", nodes(8), json!({"training": {"global_batch_size": 64}})),
        (
            "llama-3-8b",
            nodes(1),
            json!({"runtime": "fsdp2", "layout": {"pp": 1}, "training": {"global_batch_size": 16}}),
        ),
    ];
    for (preset, cluster, more) in cases {
        let search = search(preset, cluster, more);
        let best = whole(&search).rows.remove(0);
        for wanted in [
            "tp=8,pp=8",
            "tp=2",
            "pp=4,vpp=2",
            "tp=1,ep=8",
            "recompute=full,mbs=1",
            "tp=4|8,cp=2",
            "dispatcher=flex",
        ] {
            let mut request = search.request().clone();
            for pair in wanted.split(',') {
                let (name, value) = pair.split_once('=').unwrap();
                request.axes.fix(name, value).unwrap();
            }
            let answer = whole(&Search::new(&request).unwrap());
            let first = answer.rows.first().map(|row| &row.settings);
            let told = search.why_not(wanted, Some(&best)).unwrap();
            let said = format!("{preset} {wanted}: {told:?}");
            match (first, answer.counts.valid) {
                (_, 0) => assert_eq!((told.settings.as_ref(), told.step_seconds), (None, None), "{said}"),
                (Some(first), _) => assert_eq!(told.settings.as_ref(), Some(first), "{said}"),
                // What takes the least memory.
                (None, _) => {
                    let relief = answer.relief.as_ref().and_then(|relief| relief.smallest.as_ref());
                    assert_eq!(told.settings.as_ref(), relief.map(|one| &one.settings), "{said}");
                    assert!(told.reasons[0].starts_with("it does not fit: "), "{said}");
                }
            }
            assert!(!told.reasons.is_empty(), "{said}");
        }
    }
}

#[test]
fn of_what_can_not_be_the_answer_says_what_stands_in_the_way() {
    let search = search("llama-3-8b", nodes(1), json!({"training": {"global_batch_size": 16}}));
    let best = whole(&search).rows.remove(0);
    let told = search.why_not("tp=8,pp=8", Some(&best)).unwrap();
    assert_eq!(told.reasons[0], "no plan with tp=8,pp=8 is valid");
    assert!(told.reasons[1].contains("layout.tp 8 and layout.pp 8 contradict each other"), "{told:?}");
    // The best itself.
    let of_best = format!("tp={},pp={}", best.settings.tp, best.settings.pp);
    let told = search.why_not(&of_best, Some(&best)).unwrap();
    assert_eq!((told.settings.as_ref(), told.step_seconds), (Some(&best.settings), Some(best.step_seconds)));
    assert!(told.reasons[0].starts_with("it is the best"), "{told:?}");
    for (wanted, said) in [
        ("", "tp=4,pp=2"),
        (" , ", "tp=4,pp=2"),
        ("tp", "name=value"),
        ("tpp=2", "`tp`"),
        ("tp=many", "many"),
    ] {
        assert!(search.why_not(wanted, Some(&best)).is_err_and(|error| error.contains(said)), "{wanted}");
    }
}

#[test]
fn where_nothing_fits_it_is_said_what_is_lacking() {
    let search = search("llama-3-70b", nodes(1), json!({"training": {"global_batch_size": 16}}));
    assert!(whole(&search).rows.is_empty());
    let told = search.why_not("tp=8", None).unwrap();
    assert_eq!(told.settings.as_ref().map(|found| found.tp), Some(8));
    assert!(told.reasons[0].starts_with("it does not fit: "), "{told:?}");
    assert!(
        told.reasons.iter().any(|reason| reason.starts_with("nothing fits, whatever is chosen")),
        "{told:?}"
    );
}
