//! Plans of any model, cluster, runtime and objective, with whatever is held: what is chosen, and what helps where nothing fits.

use serde_json::{Value, json};

use super::tests::whole;
use super::*;
use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::wire::PlanFile;

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
            does_what_it_says(&file, &choice.request, remedy);
            helped += 1;
        }
    }
    assert!(fitting > 6 && helped > 6, "{fitting} {helped}");
}

/// A remedy that is pasted and chosen with anew gives what its sentence says: plan, bytes, seconds, and whether it fits for sure.
fn does_what_it_says(file: &PlanFile, request: &Request, remedy: &Remedy) -> Option<FitGroup> {
    let mut pasted = serde_json::to_value(file).unwrap();
    for pin in &remedy.changes {
        // As `--set` puts it there.
        crate::parse::place_of(&mut pasted, &pin.field).unwrap().clone_from(&pin.value);
    }
    let pasted = parse_plan(&pasted.to_string()).unwrap_or_else(|error| panic!("{error:?}: {pasted}"));
    let mut again = Choice::of(&pasted).unwrap().unwrap();
    again.request.margin = request.margin;
    let answer = whole(&Search::new(&again.request).unwrap());
    let first = answer.rows.first();
    let said = serde_json::to_string(file).unwrap();
    let told = format!("{said}: {} with {}: {first:?}", remedy.said, remedy.options("--set"));
    let Some(bytes) = remedy.peak_bytes else {
        assert!(answer.counts.valid > 0, "{told}");
        return None;
    };
    let first = first.unwrap_or_else(|| panic!("{told}"));
    let chosen = again.plan(&answer).unwrap();
    for plan in [&chosen, &remedy.apply(&request.plan)] {
        let found = estimate(plan);
        let (memory, time) = (found.memory.unwrap(), found.time.unwrap());
        assert_eq!(memory.peak_bytes, bytes, "{told}");
        assert_eq!(Some(time.step_seconds), remedy.step_seconds.map(crate::time::rounded), "{told}");
    }
    let words = match first.group {
        FitGroup::Fits => "what is chosen then fits, with ",
        FitGroup::Tight => "what is chosen then is tight, with ",
    };
    assert!(remedy.said.contains(words), "{told}");
    assert!(remedy.said.contains(&crate::units::Bytes(bytes).in_words()), "{told}");
    // Something fits for sure in any case.
    assert!(answer.counts.fitting > 0, "{told}");
    Some(first.group)
}

/// Models and GPUs as people name them, with too few of them: some remedies lead to a tight plan that is over twice as fast.
#[test]
fn every_remedy_gives_what_it_says() {
    let mut groups = [0, 0];
    for (preset, gpu, nodes, more) in [
        ("glm-4.5-air", "h200", 1, json!({})),
        ("deepseek-v3", "h100-sxm", 4, json!({})),
        ("gpt-oss-120b", "h100-sxm", 1, json!({})),
        ("qwen3-30b-a3b", "a100-40gb-sxm", 1, json!({})),
        ("llama-3-70b", "h200", 1, json!({"objective": "cheapest"})),
        ("llama-3-70b", "l40s", 2, json!({"layout": {"tp": 8, "pp": 2}})),
        ("qwen2.5-72b", "a100-80gb-sxm", 1, json!({"runtime": "fsdp2", "layout": {"pp": 1}})),
        ("glm-4.5-air", "h200", 1, json!({"objective": "fewest_gpus"})),
        ("glm-4.5", "gb200", 1, json!({})),
        ("mixtral-8x7b", "h100-sxm", 1, json!({"training": {"recompute": {"granularity": "none"}}})),
    ] {
        let mut value = json!({"version": 1, "model": {"preset": preset}, "choose": "all",
            "cluster": {"gpu": gpu, "nodes": nodes}});
        for (key, entry) in more.as_object().unwrap() {
            value[key] = entry.clone();
        }
        let file = parse_plan(&value.to_string()).unwrap();
        let choice = Choice::of(&file).unwrap().unwrap();
        let answer = whole(&Search::new(&choice.request).unwrap());
        for remedy in answer.relief.iter().flat_map(|relief| &relief.remedies) {
            // Who names the GPU alone means its usual nodes, and a file without their number 8 GPUs.
            let fields: Vec<&str> = remedy.changes.iter().map(|pin| pin.field.as_str()).collect();
            let more = fields.contains(&"cluster.nodes");
            assert_eq!(fields.contains(&"cluster.gpus_per_node"), more && gpu == "gb200", "{fields:?}");
            if let Some(group) = does_what_it_says(&file, &choice.request, remedy) {
                groups[usize::from(group == FitGroup::Tight)] += 1;
            }
        }
    }
    assert!(groups[0] > 8 && groups[1] > 2, "{groups:?}");
}
