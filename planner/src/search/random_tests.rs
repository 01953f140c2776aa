//! Plans of any model, cluster, runtime and objective, with whatever is held: what is chosen, and what helps where nothing fits.

use serde_json::{Value, json};

use super::tests::whole;
use super::*;
use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::wire::{PlanFile, Verdict};

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % count.max(1)
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

fn plan(numbers: &mut Numbers) -> PlanFile {
    let each = numbers.of(&[1u64, 2, 4, 8]);
    let gpu = numbers.of(&["h100-sxm", "a100-40gb-sxm", "l40s", "b200"]);
    let mut file = json!({
        "version": 1,
        "model": {"preset": numbers.of(&["llama-3-8b", "qwen3-14b", "gpt-oss-20b", "deepseek-v2-lite", "qwen3-30b-a3b"])},
        "cluster": {"gpu": gpu, "nodes": numbers.of(&[1u64, 2, 3, 5, 7]), "gpus_per_node": each},
        "runtime": numbers.of(&["megatron", "megatron", "fsdp2", "megatron_fsdp"]),
        "training": {"seq_len": numbers.of(&[2048u64, 4096, 8192])},
        "choose": "all",
        "objective": numbers.of(&["fastest", "fastest", "cheapest", "most_headroom", "fewest_gpus"]),
    });
    if numbers.below(2) == 0 {
        file["training"]["global_batch_size"] = numbers.of(&[8u64, 24, 60, 64, 105]).into();
    }
    let fsdp = file["runtime"] != "megatron";
    let mut layout = serde_json::Map::new();
    if fsdp {
        layout.insert("pp".to_owned(), 1.into());
    }
    for axis in ["tp", "cp", "pp", "ep"] {
        if numbers.below(5) == 0 && !(fsdp && axis == "pp") {
            layout.insert(axis.to_owned(), numbers.of(&[1u64, 2, 3, 4, 8]).into());
        }
    }
    file["layout"] = Value::Object(layout);
    parse_plan(&file.to_string()).unwrap()
}

#[test]
fn the_choice_is_the_first_row_and_what_helps_can_be_pasted() {
    let mut numbers = Numbers(7);
    let (mut fitting, mut helped) = (0, 0);
    for _ in 0..24 {
        let file = plan(&mut numbers);
        let said = serde_json::to_string(&file).unwrap();
        let mut choice = Choice::of(&file).unwrap().unwrap();
        choice.request.margin =
            numbers.of(&[None, None, Some(Margin::Share(0.1)), Some(Margin::Bytes(4 << 30))]);
        let answer = whole(&Search::new(&choice.request).unwrap());
        let all = whole(&Search::new(&Request { only_first: false, ..choice.request.clone() }).unwrap());
        assert_eq!(answer.rows.first(), all.rows.first(), "{said}");
        assert_eq!(answer.relief, all.relief, "{said}");
        if let Some(row) = answer.rows.first() {
            let found = estimate(&choice.plan(&answer).unwrap());
            let memory = found.memory.unwrap();
            assert_eq!((memory.verdict, memory.peak_bytes), (row.verdict, row.peak_bytes), "{said}");
            let seconds = found.time.unwrap().step_seconds;
            assert_eq!(seconds, crate::time::rounded(row.step_seconds), "{said}");
            fitting += 1;
        }
        for remedy in answer.relief.iter().flat_map(|relief| &relief.remedies) {
            let mut pasted = serde_json::to_value(&file).unwrap();
            for pin in &remedy.changes {
                // As `--set` puts it there.
                crate::parse::place_of(&mut pasted, &pin.field).unwrap().clone_from(&pin.value);
            }
            let pasted =
                parse_plan(&pasted.to_string()).unwrap_or_else(|error| panic!("{error:?}: {pasted}"));
            let mut again = Choice::of(&pasted).unwrap().unwrap();
            again.request.margin = choice.request.margin;
            let answer = whole(&Search::new(&again.request).unwrap());
            let group = answer.rows.first().map(|row| row.group);
            let told = format!("{said} with {}: {:?}", remedy.options("--set"), answer.rows.first());
            if remedy.peak_bytes.is_some() {
                assert_eq!(group, Some(FitGroup::Fits), "{told}");
                let found = estimate(&remedy.apply(&choice.request.plan)).memory.unwrap();
                assert_eq!(
                    (found.verdict, Some(found.peak_bytes)),
                    (Verdict::Fits, remedy.peak_bytes),
                    "{told}"
                );
            } else {
                assert!(answer.counts.valid > 0, "{told}");
            }
            helped += 1;
        }
    }
    assert!(fitting > 6 && helped > 6, "{fitting} {helped}");
}
