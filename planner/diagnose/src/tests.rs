use super::*;
use planner::search::Margin;
use planner::units::Bytes;
use planner::wire::PlanFile;

fn plan(json: &str) -> Plan {
    let file: PlanFile = planner::parse::parse_plan(json).expect("a plan");
    Plan::resolve(&file).plan.expect("a plan without errors")
}

pub(super) fn of(text: &str, plan: Option<&Plan>) -> Answer {
    let mut diagnosis = Diagnosis::new(plan);
    diagnosis.feed(text.as_bytes());
    diagnosis.finish()
}

const OOM: &str = "[rank9]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of \
                   79.11 GiB of which 1.33 GiB is free. Including non-PyTorch memory, this process has 77.77 GiB memory in use. Of \
                   the allocated memory 71.02 GiB is allocated by PyTorch, and 4.98 GiB is reserved by PyTorch but unallocated.\n";

#[test]
fn an_out_of_memory_error_is_set_against_its_plan() {
    let plan = plan(
        r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 2},
            "layout": {"tp": 2, "pp": 2}, "training": {"micro_batch_size": 2, "global_batch_size": 64}}"#,
    );
    let answer = of(OOM, Some(&plan));
    let against = answer.verdicts[0].against_plan.as_ref().expect("set against the plan");
    // Rank 9 is of the second stage, and the plan says what its ranks need.
    let memory = planner::memory::answer(&plan);
    let class = memory.rank_classes.iter().find(|class| class.stage == 1).expect("a second stage");
    assert_eq!(against.predicted_allocated_bytes, class.peak_allocated_bytes);
    let found = answer.verdicts[0].out_of_memory.as_ref().expect("figures");
    assert_eq!(against.needed_bytes, Some(found.allocated_bytes.unwrap() + found.tried_bytes.unwrap()));
    assert!(!against.advice.is_empty(), "{against:?}");
    assert_eq!(answer.verdicts[0].next[0], against.advice[0]);
}

#[test]
fn advice_that_saves_less_than_is_missing_is_not_offered_alone() {
    let plan = plan(
        r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 1},
            "layout": {"tp": 2}, "training": {"micro_batch_size": 2, "global_batch_size": 64}}"#,
    );
    let (mut sufficed, mut did_not) = (0, 0);
    for tried in [0.5, 6.0, 30.0, 78.0] {
        let text = format!(
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried:.2} GiB. GPU 1 has a total capacity of 79.11 \
             GiB of which 0.25 GiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch.\n"
        );
        let answer = of(&text, Some(&plan));
        let against = answer.verdicts[0].against_plan.as_ref().expect("set against the plan");
        assert!(against.missing_bytes as f64 >= (tried - 0.26) * f64::from(1 << 30), "{against:?}");
        let missing = Bytes(against.missing_bytes);
        if against.advice.iter().any(|advice| advice.starts_with("no change that was tried")) {
            assert_eq!(against.advice.len(), 1, "{against:?}");
            assert!(
                against.advice[0].contains(&format!("{} that are missing", missing.in_words())),
                "{against:?}"
            );
            did_not += 1;
            continue;
        }
        assert!(!against.advice.is_empty(), "{against:?}");
        for advice in &against.advice {
            let (_, saved) = advice.rsplit_once("GPU, ").expect("what it saves");
            let saved = Margin::parse(saved.trim_end_matches(" less")).expect("bytes").bytes(0);
            assert!(saved + (1 << 23) >= missing.0, "{advice}, and {} are missing", missing.in_words());
        }
        sufficed += 1;
    }
    assert!(sufficed > 0 && did_not > 0, "{sufficed}, {did_not}");
}

/// The error of a rank whose GPU others hold a part of.
fn beside(rank: u32, gpu: u32, others: &str, own: &str) -> String {
    format!(
        "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity of 79.11 \
         GiB of which 200.00 MiB is free. {others}Including non-PyTorch memory, this process has {own} memory in use. Of the \
         allocated memory 17.00 GiB is allocated by PyTorch, and 299.00 MiB is reserved by PyTorch but unallocated.\n"
    )
}

#[test]
fn who_holds_the_gpus_memory_is_the_cause() {
    let others = "Process 999 has 50.00 GiB memory in use. Process 7 has 10.00 GiB memory in use. ";
    let log = beside(3, 3, others, "18.80 GiB");
    let plan = plan(
        r#"{"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 1},
            "layout": {"tp": 2}, "training": {"micro_batch_size": 2, "global_batch_size": 64}}"#,
    );
    // Whatever else the log says of the same error, and whichever is first.
    let again = "[rank3]: torch.OutOfMemoryError: CUDA out of memory\n";
    for text in [log.clone(), format!("{log}{again}"), format!("{again}{log}")] {
        for plan in [None, Some(&plan)] {
            let answer = of(&text, plan);
            let first = &answer.verdicts[0];
            assert_eq!(first.cause, "gpu-memory-taken", "{text}");
            for part in ["process 999 has 50.00 GiB", "process 7 has 10.00 GiB"] {
                assert!(first.title.contains(part), "{}", first.title);
            }
            assert!(
                first.next[0].contains("--query-compute-apps=pid,used_memory --format=csv"),
                "{:?}",
                first.next
            );
            assert!(first.next[1].contains("another node"), "{:?}", first.next);
            let found = first.out_of_memory.as_ref().expect("figures");
            assert_eq!(found.in_use_bytes.map(|bytes| bytes >> 20), Some(19_251));
            assert_eq!(first.culprit.gpu.as_deref(), Some("3"));
            assert_eq!(plan.is_some(), first.against_plan.is_some());
        }
    }
    // Of a run that fills the GPU itself nothing changes, though others have their contexts there.
    let own = beside(3, 3, "Process 999 has 520.00 MiB memory in use. ", "78.30 GiB");
    let first = &of(&own, None).verdicts[0];
    assert_eq!((first.cause.as_str(), first.title.contains("999")), ("cuda-oom", false));
}

#[test]
fn ranks_that_share_a_gpu_are_told() {
    let pair = |gpus: [u32; 2], marks: [&str; 2]| {
        let line = |at: usize, other: u32| {
            let said = beside(
                at as u32,
                gpus[at],
                &format!("Process {other} has 39.00 GiB memory in use. "),
                "39.80 GiB",
            );
            format!("{}{said}", marks[at])
        };
        of(&format!("{}{}", line(0, 11), line(1, 10)), None).verdicts.remove(0)
    };
    let first = pair([2, 2], ["n1: ", "n1: "]);
    assert!(first.meaning.contains("Ranks 0, 1 ran out of memory on GPU 2 of node n1"), "{}", first.meaning);
    assert!(first.next[0].contains("LOCAL_RANK"), "{:?}", first.next);
    // On nodes that are not told it may be so; of two GPUs, or two nodes, it is not.
    let unknown = pair([2, 2], ["", ""]);
    assert!(unknown.meaning.contains("unless they are on different nodes"), "{}", unknown.meaning);
    assert!(unknown.next[0].contains("nvidia-smi") && unknown.next[1].contains("LOCAL_RANK"));
    for apart in [pair([2, 3], ["n1: ", "n1: "]), pair([2, 2], ["n1: ", "n2: "])] {
        assert!(!apart.meaning.contains("share"), "{}", apart.meaning);
    }
}

#[test]
fn hardware_that_failed_is_named_before_what_cuda_says_of_it() {
    let hardware = [
        "kernel: NVRM: Xid (PCI:0000:9d:00): 79, pid=1, GPU has fallen off the bus.",
        "kernel: NVRM: GPU 0000:9d:00.0: GPU has fallen off the bus.",
        "kernel: NVRM: Xid (PCI:0000:9d:00): 48, pid=1, An uncorrectable double bit error (DBE) has been detected",
        "kernel: NVRM: Xid (PCI:0000:9d:00): 119, pid=1, Timeout waiting for RPC from GSP",
        "kernel: NVRM: Xid (PCI:0000:9d:00): 74, pid=1, NVLink: fatal error detected on link 2",
        "NVMLError_GpuIsLost: GPU is lost",
    ];
    let of_cuda = [
        "torch.AcceleratorError: CUDA error: unspecified launch failure",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: invalid device ordinal",
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: CUDA error: unknown error",
    ];
    for hardware in hardware {
        for error in of_cuda {
            let raised = format!("[rank3]: Traceback (most recent call last):\n[rank3]: {error}\n");
            let alone = of(&format!("{hardware}\n"), None);
            for text in [format!("{raised}{hardware}\n"), format!("{hardware}\n{raised}")] {
                let answer = of(&text, None);
                assert_eq!(answer.verdicts[0].cause, alone.verdicts[0].cause, "{text}");
                assert!(answer.verdicts.len() > 1, "{text}");
            }
        }
    }
}

#[test]
fn a_cancelled_step_is_no_cancelled_job() {
    for end in ["***", "DUE TO SIGNAL Terminated ***", "DUE to SIGNAL Terminated ***"] {
        for (what, cause) in [("STEP 123.0", "slurm-step-cancelled"), ("JOB 123", "slurm-cancelled")] {
            let text =
                format!("slurmstepd: error: *** {what} ON n1 CANCELLED AT 2026-11-03T09:05:00 {end}\n");
            let answer = of(&text, None);
            assert_eq!(answer.verdicts[0].cause, cause, "{text}");
            assert_eq!(answer.verdicts[0].title.contains("step"), what.starts_with("STEP"), "{text}");
        }
    }
}

/// The log of a job: attempts that train and then end with `ends`, each but the last put back into the queue at that minute.
fn requeued(ends: &[&str], has_steps: bool, has_times: bool) -> String {
    let mut text = String::new();
    for (attempt, end) in ends.iter().enumerate() {
        let time = |second| match has_times {
            true => format!("2026-11-03 {:02}:05:{second:02} ", 8 + attempt),
            false => String::new(),
        };
        if has_steps {
            for step in 0..5 {
                text.push_str(&format!("{}iteration {step}/ 100 | lm loss: 2.0\n", time(step)));
            }
        }
        text.push_str(&format!("{}{end}\n", time(20)));
        if attempt + 1 < ends.len() {
            text.push_str(&format!(
                "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-03T{:02}:05:30 DUE TO JOB REQUEUE ***\n\
                 srun: error: n1: task 3: Killed\n",
                8 + attempt
            ));
        }
    }
    text
}

#[test]
fn the_last_attempt_is_told_and_earlier_ones_are_named() {
    let raised = |error: &str| format!("[rank3]: Traceback (most recent call last):\n[rank3]: {error}");
    let memory = raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.");
    let access = raised("RuntimeError: CUDA error: an illegal memory access was encountered");
    let disk = raised("OSError: [Errno 28] No space left on device");
    let cause = |text: &str| of(text, None).verdicts[0].cause.clone();
    let ends: Vec<(&str, String)> = [&memory, &access, &disk].map(|end| (end.as_str(), cause(end))).to_vec();
    for (has_steps, has_times) in [(true, true), (true, false), (false, true), (false, false)] {
        for order in [[0, 1, 2], [2, 1, 0], [1, 1, 0], [0, 0, 0]] {
            let text = requeued(&order.map(|at: usize| ends[at].0), has_steps, has_times);
            let answer = of(&text, None);
            assert_eq!(answer.verdicts[0].cause, ends[order[2]].1, "{text}");
            let told: Vec<(u64, &str)> =
                answer.earlier.iter().map(|one| (one.attempt, one.cause.as_str())).collect();
            assert_eq!(told, [(1, ends[order[0]].1.as_str()), (2, ends[order[1]].1.as_str())], "{text}");
            // What Slurm killed belongs to the attempt that it ended.
            assert_eq!(answer.exit, None, "{text}");
            assert!(answer.notes[0].contains("attempt 1: "), "{:?}", answer.notes);
            let evidence = answer.verdicts[0].evidence.last().expect("a line").line;
            assert!(evidence > text.lines().count() as u64 - 3, "{evidence} of {text}");
            // The same, cut into files as our scripts name them; the order in which they are given says nothing.
            let mut files = Diagnosis::new(None);
            for attempt in [2, 0, 1] {
                files.file(&format!("logs/train_5.{attempt}.train.log"));
                files.feed(format!("{}\n", ends[order[attempt]].0).as_bytes());
            }
            let files = files.finish();
            assert_eq!(files.verdicts[0].cause, ends[order[2]].1);
            let told: Vec<(u64, &str)> =
                files.earlier.iter().map(|one| (one.attempt, one.cause.as_str())).collect();
            assert_eq!(told, [(1, ends[order[0]].1.as_str()), (2, ends[order[1]].1.as_str())]);
        }
    }
}

#[test]
fn last_words_after_a_requeue_are_of_the_attempt_that_ended() {
    let text = "[rank3]: Traceback (most recent call last):\n[rank3]: OSError: [Errno 28] No space left on device\n\
                slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-11-03T08:05:30 DUE TO JOB REQUEUE ***\n\
                2026-11-03 08:05:45 [rank1]: RuntimeError: CUDA error: an illegal memory access was encountered\n";
    let answer = of(text, None);
    assert!(answer.earlier.is_empty(), "{:?}", answer.earlier);
    assert_eq!(answer.verdicts[0].evidence.last().map(|line| line.line), Some(2));
    // A job that is queued again and has not begun tells of the attempt that ended.
    let text = requeued(
        &[
            "[rank3]: Traceback (most recent call last):\n[rank3]: OSError: [Errno 28] No space left on device",
            "",
        ],
        false,
        false,
    );
    assert!(of(&text, None).found);
}

#[test]
fn ranks_of_an_earlier_attempt_are_not_silent_in_the_last() {
    let timeout = |rank: u32| {
        format!(
            "[rank{rank}]:[E1103 10:00:00.100000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 \
             milliseconds before timing out.\n"
        )
    };
    let steps = |ranks: std::ops::Range<u32>| {
        let lines = ranks.flat_map(|rank| (1..5).map(move |step| (rank, step)));
        lines
            .map(|(rank, step)| format!("[rank{rank}]: iteration {step}/ 100 | lm loss: 2.0\n"))
            .collect::<String>()
    };
    let restart = "[default] Worker group FAILED. 1/1 attempts left; will restart worker group\n";
    // Eight ranks, and then four, of which the last hangs.
    let last = steps(0..4) + &(0..3).map(timeout).collect::<String>();
    for text in [last.clone(), format!("{}{restart}{last}", steps(0..8))] {
        let answer = of(&text, None);
        let verdict = &answer.verdicts[0];
        assert_eq!((verdict.cause.as_str(), verdict.culprit.rank), ("nccl-timeout", Some(3)), "{answer:?}");
    }
}

/// What ends an attempt by its own word: our scripts' last line, torchrun's restart, Slurm's preemption and node failure.
#[test]
fn ends_of_attempts_are_known_by_who_says_them() {
    let memory = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    let disk =
        "[rank1]: Traceback (most recent call last):\n[rank1]: OSError: [Errno 28] No space left on device\n";
    let script = "0 of 20 steps are saved in /r/slurm-7. To go on: scontrol requeue 7, or later SHARDPLAN_RESUME=slurm-7 sbatch ...\n\
                  sacct -j 7 --format=JobID,State\n";
    let elastic = "failed (exitcode: 1) local_rank: 3 (pid: 12) of binary: python\n\
                   [default] Worker group FAILED. 1/1 attempts left; will restart worker group\n";
    let preempted = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T10:05:00 DUE TO PREEMPTION ***\n\
                     torch.distributed.elastic.multiprocessing.api.SignalException: Process 88 got signal: 15\n\
                     srun: error: n1: tasks 0-7: Terminated\n";
    let of_node =
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T10:05:00 DUE TO NODE FAILURE ***\n";
    for (end, told) in [
        (script, "cuda-oom"),
        (elastic, "cuda-oom"),
        (preempted, "slurm-preempted"),
        (of_node, "slurm-node-failure"),
    ] {
        let first = if told == "cuda-oom" { memory } else { "" };
        let text = format!(
            "{first}srun: error: n7: task 3: Exited with exit code 1\n{end}{disk}srun: error: n7: task 1: Exited with exit code 1\n"
        );
        let answer = of(&text, None);
        let (cause, culprit) = (&answer.verdicts[0].cause, &answer.verdicts[0].culprit);
        assert_eq!((cause.as_str(), culprit.rank), ("disk-full", Some(1)), "{text}");
        assert_eq!(answer.exit.and_then(|end| end.origin.rank), Some(1), "{text}");
        let earlier: Vec<&str> = answer.earlier.iter().map(|one| one.cause.as_str()).collect();
        assert_eq!(earlier, [told], "{text}");
        // And where nothing comes behind it, it is of the last.
        assert!(of(&format!("{first}{end}"), None).earlier.is_empty());
    }
}

/// What is left of a job whose node failed says so late, on clocks of its own; only what starts again is another attempt.
#[test]
fn a_failed_node_is_the_cause_until_something_starts_again() {
    let steps = |from: u64, count: u64| -> String {
        (from..from + count).map(|step| format!(" iteration {step}/ 1000 | lm loss: 2.3E+00 |\n")).collect()
    };
    let lost = "srun: error: Node failure on node7\n";
    let ended = |what: &str| {
        format!(
            "slurmstepd: error: *** {what} ON node1 CANCELLED AT 2026-05-01T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR \
             DETAILS ***\n"
        )
    };
    let (job, step) = (ended("JOB 12345"), ended("STEP 12345.0"));
    let ends = [
        format!("{lost}{job}"),
        job.clone(),
        format!("{step}{lost}"),
        format!("{job}{step}{lost}"),
        lost.to_owned(),
    ];
    let timeout = "[rank0]:[E501 10:20:00.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: \
                   WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds \
                   before timing out.\n";
    let lines_after = [
        timeout.to_owned(),
        "2026-05-01 18:00:05 [rank2]: torch.distributed.DistBackendError: NCCL error in: x.cpp:3, remote process exited, NCCL \
         version 2.21.5\n"
            .to_owned(),
        format!("{}{timeout}", steps(100, 2)),
        format!("srun: error: node1: tasks 0-7: Killed\n{timeout}"),
    ];
    let starts = [
        "srun: job 12345 was requeued\n".to_owned(),
        "slurmstepd: error: *** JOB 12345 ON node1 CANCELLED AT 2026-05-01T10:00:01 DUE TO JOB REQUEUE ***\n".to_owned(),
        "NCCL version 2.21.5+cuda12.4\n".to_owned(),
        "using world size: 16, data-parallel size: 8\n".to_owned(),
        "W0501 10:05:00 run.py:793] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n".to_owned(),
        steps(1, 3),
        steps(61, 2),
        "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n".to_owned(),
    ];
    let told = |answer: &Answer| {
        let earlier: Vec<String> = answer.earlier.iter().map(|one| one.cause.clone()).collect();
        (answer.verdicts.first().map(|first| first.cause.clone()).unwrap_or_default(), earlier)
    };
    let node = || "slurm-node-failure".to_owned();
    for end in &ends {
        for after in &lines_after {
            let text = format!("{}{end}{after}", steps(90, 11));
            assert_eq!(told(&of(&text, None)), (node(), vec![]), "{text}");
        }
        for start in &starts {
            // Much of it, so that what started stands far above what ended it.
            for more in ["", &" building the model\n".repeat(2000)] {
                let text = format!("{}{end}{start}{more}{timeout}", steps(90, 11));
                // Slurm's word on a node alone ends no job, and steps behind it are the same run's.
                if (end == lost && start.contains("iteration"))
                    || (start.contains("iteration") && !more.is_empty())
                {
                    continue;
                }
                let expected = ("nccl-timeout".to_owned(), vec![node()]);
                assert_eq!(told(&of(&text, None)), expected, "{end}{start}");
            }
        }
        // Another job in the same file.
        let other = "slurmstepd: error: *** JOB 12399 ON node2 CANCELLED AT 2026-05-01T12:00:00 DUE TO TIME LIMIT ***\n";
        if end != lost {
            let text = format!("{}{end}{other}", steps(90, 11));
            assert_eq!(told(&of(&text, None)), ("slurm-time-limit".to_owned(), vec![node()]));
        }
    }
}

/// Who ended before training went on is not who ended it.
#[test]
fn an_end_that_training_went_on_after_is_nobodys() {
    let steps = |from: u64| -> String {
        (from..from + 5).map(|step| format!("iteration {step}/ 100 | lm loss: 2.0\n")).collect()
    };
    let timeout = "[rank5]:[E1120 11:10:33.1 ProcessGroupNCCL.cpp:616] [Rank 5] Watchdog caught collective operation timeout: \
                   WorkNCCL(SeqNum=812, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n\
                   srun: error: n7: task 5: Aborted (core dumped)\n";
    let text = format!("{}srun: error: n7: task 3: Exited with exit code 1\n{}{timeout}", steps(0), steps(5));
    let end = of(&text, None).exit.expect("an end");
    assert_eq!((end.origin.rank, end.code), (Some(5), Some(134)));
}

#[test]
fn requeues_without_end_are_bounded() {
    let text = requeued(
        &["[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered"; 1000],
        true,
        false,
    );
    let answer = of(&text, None);
    assert!(answer.found && answer.earlier.len() < 100, "{}", answer.earlier.len());
}

#[test]
fn secrets_of_a_log_are_not_in_the_answer() {
    let text = format!(
        "export HF_TOKEN=hf_{0} RuntimeError: CUDA out of memory {0}\nHF_TOKEN=hf_{0} Killed process 1 Out of memory: Kill\n",
        "q".repeat(30)
    );
    let written = serde_json::to_string(&of(&text, None)).expect("JSON");
    assert!(!written.contains(&format!("hf_{}", "q".repeat(30))), "{written}");
}

#[test]
fn floods_are_bounded() {
    let mut text = String::new();
    for number in 0..3000 {
        text.push_str(&format!(
            "[rank{number}]: Traceback (most recent call last)\n[rank{number}]: Kind{number}Error: x\n"
        ));
    }
    let answer = of(&text, None);
    assert!(answer.verdicts.len() <= 12);
    assert!(answer.verdicts.iter().all(|verdict| verdict.evidence.len() <= 6 && verdict.ranks.len() <= 16));
    assert_eq!(answer.looked_at.ranks, 3000);
}

#[test]
fn times_on_some_lines_only_are_in_some_order() {
    let mut diagnosis = Diagnosis::new(None);
    for (number, text) in super::searched_texts().iter().enumerate() {
        let minutes = 1439 - number % 1440;
        let time = match number % 3 {
            0 => String::new(),
            _ => format!("2026-11-21 {:02}:{:02}:00 ", minutes / 60, minutes % 60),
        };
        diagnosis.feed(format!("{time}{text}\n").as_bytes());
    }
    assert!(diagnosis.finish().found);
}

#[test]
fn a_failed_gpu_is_no_other_nodes_nor_of_a_rank_that_says_itself_why_it_ended() {
    let xid =
        "node07: 2026-03-01T10:00:02 kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.";
    let aborted = "node09: [rank17]: RuntimeError: NCCL communicator was aborted on rank 17";
    let other = of(
        &[xid, aborted, "srun: error: node09: task 17: Exited with exit code 1"].join(
            "
",
        ),
        None,
    );
    let culprit = &other.verdicts[0].culprit;
    assert_eq!((culprit.rank, culprit.node.as_deref()), (None, Some("node07")), "{culprit:?}");
    let ecc = "[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered";
    let broken = "[rank1]: AssertionError: rank 1: found NaN in local forward loss calculation";
    let own = of(
        &[xid, ecc, broken, "srun: error: node07: task 1: Exited with exit code 1"].join(
            "
",
        ),
        None,
    );
    assert_eq!(own.verdicts[0].culprit.rank, Some(5), "{:?}", own.verdicts[0]);
    // Where nothing else is said, the first process to end on that node is its.
    let alone = of(
        &[xid, "srun: error: node07: task 3: Exited with exit code 1"].join(
            "
",
        ),
        None,
    );
    assert_eq!(alone.verdicts[0].culprit.rank, Some(3), "{:?}", alone.verdicts[0]);
}

#[test]
fn the_last_word_of_a_worker_says_why_it_ended() {
    let word = super::last_word("shardplan-rank: token 2304 is not in the model's vocabulary of 256 words");
    let log = format!("[rank0]: step 1\n[rank0]: {word}\nRank 0 exited with code 1\n");
    let answer = of(&log, None);
    let first = answer.verdicts.first().unwrap();
    assert_eq!(first.cause, "worker-error");
    assert!(
        first.meaning.contains("vocabulary of 256 words") && !first.meaning.contains("[rank0]"),
        "{}",
        first.meaning
    );
    // What is known by its words is told as that.
    let word = super::last_word("shardplan-rank: CUDA out of memory. Tried to allocate 2.00 GiB");
    let log = format!(
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n[rank0]: {word}\nRank 0 exited with code 1\n"
    );
    assert_eq!(of(&log, None).verdicts[0].cause, "cuda-oom");
}
