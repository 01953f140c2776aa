//! Iterations as text, for tests.

use super::Reader;
use planner::wire::Iteration;

/// Reads lines and compares what was found, written short.
#[track_caller]
pub(crate) fn check(lines: &[&str], expected: &[&str]) {
    assert_eq!(read(lines), expected, "{lines:#?}");
}

/// What is found in lines, written short.
pub(crate) fn read(lines: &[&str]) -> Vec<String> {
    let (mut reader, mut found) = (Reader::default(), Vec::new());
    let mut take = |iteration: Iteration| found.push(short(&iteration));
    lines.iter().for_each(|line| reader.line(line.as_bytes(), &mut take));
    reader.settle(&mut take);
    found
}

fn short(iteration: &Iteration) -> String {
    let mut text = iteration.framework.clone();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!(" {name} {value}"));
        }
    };
    let real = |value: Option<f64>| value.map(|value| format!("{}", (value * 1e9).round() / 1e9));
    add("rank", iteration.rank.map(|rank| rank.to_string()));
    let steps = iteration.steps.map_or(String::new(), |steps| format!("/{steps}"));
    add("step", Some(format!("{}{steps}", iteration.step)));
    add("loss", real(iteration.loss));
    add("loss", iteration.loss_not_finite.then(|| "not finite".to_owned()));
    add("grad_norm", real(iteration.grad_norm));
    add("lr", real(iteration.lr));
    add("seconds", real(iteration.seconds));
    add("tokens/s", real(iteration.tokens_per_second));
    add("tokens/s/gpu", real(iteration.tokens_per_second_per_gpu));
    add("samples/s", real(iteration.samples_per_second));
    add("tflops", real(iteration.tflops_per_gpu));
    add("mfu", real(iteration.mfu));
    add("batch", iteration.global_batch_size.map(|size| size.to_string()));
    add("allocated", iteration.max_allocated_bytes.map(|bytes| bytes.to_string()));
    add("reserved", iteration.max_reserved_bytes.map(|bytes| bytes.to_string()));
    text
}
