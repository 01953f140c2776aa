//! Speed of planner's core: `cargo xtask bench`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use planner::cluster::FailedGpu;
use planner::nonuniform::{Against, Boost, DRAWS, MOST_POWER, RATE, SEED, sweep};
use planner::schedule::Pipeline;
use planner::search::{Partial, Request, Search};
use planner::settings::Schedule;
use planner::time::simulate::{ChunkSeconds, StageCosts, simulate};
use planner::wire::PlanFile;
use planner::{Plan, estimate, parse_plan};

fn plan(preset: &str, nodes: u64, layout: &str) -> (PlanFile, Plan) {
    let text = format!(
        r#"{{"version":1,"model":{{"preset":"{preset}"}},"cluster":{{"gpu":"h100-sxm","nodes":{nodes}}},
           "layout":{layout},"training":{{"global_batch_size":{}}}}}"#,
        nodes * 8
    );
    let file = parse_plan(&text).unwrap_or_else(|findings| panic!("{findings:?}"));
    let resolved = Plan::resolve(&file);
    let plan = resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings));
    (file, plan)
}

fn benches(criterion: &mut Criterion) {
    let uneven = r#"{"tp":2,"pp":8,"ep":16,"first_stage_layers":6,"last_stage_layers":7}"#;
    let (file, deepseek) = plan("deepseek-v3", 256, uneven);
    criterion.bench_function("families of DeepSeek-V3, all stages of pp 8", |bench| {
        bench.iter(|| {
            (0..8).map(|stage| planner::shard::stage_families(&deepseek, stage).len()).sum::<usize>()
        });
    });
    criterion.bench_function("estimate of DeepSeek-V3 on 2,048 GPUs", |bench| bench.iter(|| estimate(&file)));
    // Of a plan that names no software it is told, too, what the usual framework would make of it: a second plan.
    let mut named = file.clone();
    named.software.profile = Some("megatron".to_owned());
    criterion.bench_function("estimate of DeepSeek-V3 on 2,048 GPUs, profile named", |bench| {
        bench.iter(|| estimate(&named));
    });
    criterion.bench_function("memory of DeepSeek-V3 on 2,048 GPUs, all rank classes", |bench| {
        bench.iter(|| planner::memory::answer(&deepseek))
    });
    criterion
        .bench_function("shards of one rank of DeepSeek-V3", |bench| bench.iter(|| deepseek.rank_shards(77)));
    let (_, large) = plan("llama-3.1-405b", 16_384, r#"{"tp":8,"pp":2}"#);
    criterion.bench_function("groups of 131,072 ranks", |bench| bench.iter(|| large.groups()));
    let (mut failing, _) = plan("llama-3.1-405b", 16_384, r#"{"tp":8,"pp":2}"#);
    // One GPU in a hundred.
    failing.cluster.failed = Some((0..131_072).step_by(100).map(|rank| FailedGpu::Rank { rank }).collect());
    failing.training.global_batch_size = Some(65_536);
    criterion.bench_function("plan of 131,072 ranks with 1% failed, and its groups", |bench| {
        bench.iter(|| Plan::resolve(&failing).plan.map(|plan| plan.groups().len()));
    });
    let (_, whole) = plan("llama-3.1-405b", 16_384, r#"{"tp":8,"pp":2}"#);
    for (what, against) in
        [("share that is down", Against::Rate), ("size", Against::Gpus), ("group", Against::Domain)]
    {
        criterion.bench_function(
            &format!("failures of 131,072 GPUs by {what}, 200 draws a point"),
            |bench| {
                bench.iter(|| {
                    let at = (RATE, Boost::of_power(MOST_POWER));
                    sweep(&whole, against, &against.values(&whole), at, (DRAWS, SEED))
                });
            },
        );
    }
    let (_, even) = plan("deepseek-v3", 256, r#"{"ep":8}"#);
    criterion.bench_function("layouts of DeepSeek-V3 on 2,048 GPUs", |bench| {
        bench.iter(|| planner::rules::valid_layouts(&even));
    });
}

/// DeepSeek-V3's step: 32,768 actions on 16 stages of two chunks, no two alike.
fn simulation(criterion: &mut Criterion) {
    let pipeline = Pipeline {
        schedule: Schedule::Interleaved,
        stages: 16,
        chunks: 2,
        microbatches: 512,
        group_size: 16,
    };
    let chunk = |number: u32| ChunkSeconds {
        forward: 1e-3 * (1.0 + 0.01 * f64::from(number % 7)),
        backward_input: 1.2e-3 * (1.0 + 0.01 * f64::from(number % 5)),
        backward_weight: 0.8e-3,
    };
    let costs = StageCosts { chunks: (0..32).map(chunk).collect(), transfer: 1e-4, exposed: 0.3 };
    criterion.bench_function("simulation of a step with pp 16, vpp 2, 512 micro batches", |bench| {
        bench.iter(|| simulate(&pipeline, &costs));
    });
}

/// A step's time in closed form: from layer terms that a search keeps, and from the plan.
fn closed_form(criterion: &mut Criterion) {
    let (_, plan) =
        plan("deepseek-v3", 256, r#"{"tp":2,"pp":8,"ep":16,"first_stage_layers":6,"last_stage_layers":7}"#);
    let setup = planner::time::setup(&plan).unwrap_or_else(|reason| panic!("{reason}"));
    let machine = setup.machine(&planner::time::constants::table().values());
    let terms = planner::time::Terms::new(&machine, &setup.split, &setup.options, &setup.shape);
    let pipe = setup.pipe(&machine);
    criterion.bench_function("step time of DeepSeek-V3 from kept layer terms", |bench| {
        bench.iter(|| planner::time::step(&machine, &terms, &setup.stages, &pipe, &setup.data).total());
    });
    criterion.bench_function("layer terms of DeepSeek-V3", |bench| {
        bench.iter(|| planner::time::Terms::new(&machine, &setup.split, &setup.options, &setup.shape));
    });
    criterion.bench_function("time answer of DeepSeek-V3 on 2,048 GPUs", |bench| {
        bench.iter(|| planner::time::answer(&plan));
    });
}

/// Every candidate of the parts of one tensor parallelism: rules, memory of the fullest rank and step time.
fn search(criterion: &mut Criterion) {
    let all = [Schedule::OneFOneB, Schedule::Interleaved, Schedule::Gpipe, Schedule::ZbH1, Schedule::Zbv];
    for (name, preset, nodes) in [
        ("DeepSeek-V3 on 2,048 GPUs", "deepseek-v3", 256),
        ("Llama-3.1-405B on 16,384 GPUs", "llama-3.1-405b", 2048),
    ] {
        let (file, _) = plan(preset, nodes, "{}");
        let mut request = Request::new(file);
        request.axes.schedule = Some(all.to_vec());
        let whole = Search::new(&request).unwrap_or_else(|findings| panic!("{findings:?}"));
        let evaluated = |search: &Search| {
            let mut worker = search.worker();
            let mut partial = Partial::default();
            (0..search.parts()).for_each(|part| worker.run(part, &mut partial));
            partial.valid
        };
        let mut group = criterion.benchmark_group("search");
        group.throughput(Throughput::Elements(evaluated(&whole)));
        group.sample_size(10);
        group.bench_function(name, |bench| bench.iter(|| evaluated(&whole)));
        group.finish();
    }
}

criterion_group!(planner_core, benches, closed_form, simulation, search);
criterion_main!(planner_core);
