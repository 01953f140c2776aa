//! Lines with what is to be said of them: the first cause, or none where nothing ended a run.

use diagnose::{Answer, Diagnosis};

fn of(log: &str) -> Answer {
    let mut diagnosis = Diagnosis::new(None);
    diagnosis.feed(log.as_bytes());
    diagnosis.finish()
}

/// What is named first, and empty where nothing is.
fn first(answer: &Answer) -> &str {
    answer.verdicts.first().map_or("", |first| first.cause.as_str())
}

fn check(log: &str, cause: &str) {
    let answer = of(log);
    assert_eq!(first(&answer), cause, "{log}\n{answer:?}");
}

const STEPS: &str =
    " iteration       10/     100 | lm loss: 1.0E+01 |\n iteration       11/     100 | lm loss: 1.0E+01 |\n";
const KEY: &str = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 3, in <module>\n[rank0]: KeyError: 'text'\n\
                   srun: error: gpu-12: task 0: Exited with exit code 1\n";

#[test]
fn no_advice_destroys_what_was_trained() {
    // Every cause is named by some of its own texts.
    for text in diagnose::searched_texts() {
        for verdict in of(&format!("RuntimeError: {text}\n{text}\n")).verdicts {
            for step in verdict.next {
                let removes = ["rm -", "remove", "delete", "wipe"].iter().any(|word| step.contains(word));
                let trained = ["checkpoint", "nemo_experiments", "--save", "--load"];
                assert!(
                    !step.contains("rm -r") && !(removes && trained.iter().any(|word| step.contains(word))),
                    "{}: {step}",
                    verdict.cause
                );
            }
        }
    }
}

/// An exception that Python reports and ignores, each line behind a mark.
fn ignored(mark: &str, head: &str, error: &str) -> String {
    format!(
        "{mark}{head}\n{mark}Traceback (most recent call last):\n{mark}  File \"/x/dataloader.py\", line 1466, in __del__\n\
         {mark}    self._shutdown_workers()\n{mark}{error}\n"
    )
}

#[test]
fn exceptions_that_python_ignores_end_nothing() {
    let heads = [
        "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>",
        "Exception ignored in atexit callback: <function shutdown at 0x7f>",
        "Exception ignored on calling ctypes callback function <function f at 0x7f>:",
        "Exception ignored while calling deallocator <function A.__del__ at 0x7f>:",
        "Exception ignored in: <module 'threading' from '/usr/lib/python3.12/threading.py'>",
        "Error in atexit._run_exitfuncs:",
    ];
    let errors = [
        "AssertionError: can only test a child process",
        "TypeError: 'NoneType' object is not callable",
        "RuntimeError: cannot schedule new futures after shutdown",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "OSError: [Errno 28] No space left on device",
    ];
    for head in heads {
        for error in errors {
            for mark in ["", "[rank3]: ", "3: "] {
                let ignored = ignored(mark, head, error);
                check(&format!("{STEPS}{ignored}"), "");
                check(&format!("{STEPS}[after training is done] x\n{ignored}"), "");
                // What raised for itself is found before and behind it.
                for log in [format!("{STEPS}{ignored}{KEY}"), format!("{STEPS}{KEY}{ignored}")] {
                    check(&log, "python-exception");
                    assert!(of(&log).verdicts[0].title.contains("KeyError"), "{log}");
                }
            }
        }
    }
    // One that caused the other is as much ignored, and one without a traceback.
    let chain = ignored("", heads[0], errors[0])
        + "\nDuring handling of the above exception, another exception occurred:\n\n\
           Traceback (most recent call last):\n  File \"x.py\", line 1, in f\nValueError: y\n";
    check(&format!("{STEPS}{chain}"), "");
    check(
        "Exception ignored in: <generator object f at 0x7f>\nRuntimeError: generator ignored GeneratorExit\n",
        "",
    );
    // Processes without marks, whose lines mix.
    let head = format!("{}\nTraceback (most recent call last):\n  File \"x.py\", line 1, in f\n", heads[0]);
    check(&format!("{head}{head}{}\n{}\n", errors[0], errors[0]), "");
    // The same exception where it is not ignored, of the same writer and of another.
    let own = "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"x.py\", line 1, in f\n[rank3]: AssertionError: can only\n";
    for mark in ["", "[rank3]: ", "[rank4]: "] {
        check(&format!("{}{own}", ignored(mark, heads[0], errors[0])), "python-exception");
    }
}

#[test]
fn slurms_notice_on_a_folder_is_no_end() {
    for why in
        ["Permission denied", "No space left on device", "No such file or directory", "Read-only file system"]
    {
        let notice = format!(
            "slurmstepd: error: Unable to create TMPDIR [/local/scratch/123]: {why}\nslurmstepd: error: Setting TMPDIR to /tmp\n"
        );
        check(&format!("{notice}{KEY}"), "python-exception");
        check(&format!("{notice}{STEPS}"), "");
        check(&notice, "");
    }
    check("[rank0]: PermissionError: [Errno 13] Permission denied: '/x'\n", "permission");
}

#[test]
fn a_run_that_ends_itself_says_why_and_what_it_saved() {
    let saved = "  successfully saved checkpoint from iteration     102 to /ckpt [ t 1/2, p 1/1 ]\n";
    for (said, cause) in [
        ("exiting program after 230.00421476364136 minutes", "exit-duration"),
        ("exiting program after 230 minutes", "exit-duration"),
        ("exiting program after receiving SIGTERM.", "exit-signal"),
    ] {
        let said = format!(" [{said}] datetime: 2024-08-15 10:21:40 \n");
        check(&said, cause);
        for log in [format!("{STEPS}{saved}{said}"), format!("{STEPS}{said}{saved}")] {
            check(&log, cause);
            let meaning = &of(&log).verdicts[0].meaning;
            assert!(meaning.contains("is saved is of iteration 102"), "{meaning}");
        }
        assert!(
            of(&format!("{STEPS}{said}")).verdicts[0]
                .meaning
                .contains("does not say that a checkpoint was saved")
        );
        // What went wrong before is nearer, and so is Slurm's word on its own limit.
        let disk = "[rank0]: OSError: [Errno 28] No space left on device\n";
        check(&format!("{STEPS}{disk}{said}"), "disk-full");
    }
    let limit = "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2024-08-15T10:21:50 DUE TO TIME LIMIT ***\n";
    check(
        &format!(
            "{STEPS} [exiting program after receiving SIGTERM.] datetime: 2024-08-15 10:21:40 \n{limit}"
        ),
        "slurm-time-limit",
    );
    // Steps that were asked for are not an end for want of time.
    check(&format!("{STEPS} [exiting program at iteration 11] datetime: 2024-08-15 10:21:40 \n"), "");
}

#[test]
fn a_barrier_blames_who_did_not_come() {
    let echo = |rank: u32, of: u32| {
        format!(
            "[rank{rank}]: RuntimeError: Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for \
             send/recv from rank {of}. Please check rank {of} logs for faulty rank.\n"
        )
    };
    let named = "[rank0]: RuntimeError: [Rank 0]: Ranks 5, 6 failed to pass monitoredBarrier in 2000000 ms\n";
    for (log, rank) in [
        (echo(0, 5), 5),
        (named.to_owned(), 5),
        (format!("{}{}{named}", echo(3, 0), echo(4, 0)), 5),
        (format!("{}{}", echo(3, 0), echo(0, 7)), 7),
        (format!("{}{}", echo(3, 0), echo(4, 0)), 0),
    ] {
        let answer = of(&log);
        assert_eq!((first(&answer), answer.verdicts[0].culprit.rank), ("nccl-timeout", Some(rank)), "{log}");
    }
}
