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

const STEPS: &str = " iteration 9/ 100 | lm loss: 1.0E+01 |\n iteration 10/ 100 | lm loss: 1.0E+01 |\n iteration 11/ 100 | lm loss: 1.0E+01 |\n";
const KEY: &str = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 3, in <module>\n[rank0]: KeyError: 'text'\n\
                   srun: error: gpu-12: task 0: Exited with exit code 1\n";

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
    // And what is saved is told beside who sent the signal.
    let preempted = limit.replace("TIME LIMIT", "PREEMPTION");
    let answer = of(&format!("{saved} [exiting program after receiving SIGTERM.] datetime: x\n{preempted}"));
    assert_eq!(first(&answer), "slurm-preempted");
    assert!(answer.verdicts.iter().any(|verdict| verdict.meaning.contains("iteration 102")), "{answer:?}");
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

/// What a run's other lines are about a rank that ended on its own.
const CANCELLED: &str = "srun: error: gpu-12: tasks 8-15: Exited with exit code 255\nsrun: Terminating StepId=123.0\n\
                         slurmstepd: error: *** STEP 123.0 ON gpu-11 CANCELLED AT 2025-03-31T10:00:00 ***\n";

#[test]
fn exchanges_beside_nccl_are_known() {
    let ibgda =
        "/sw/main_nvshmem/src/modules/transport/ibgda/ibgda.cpp:2234: NULL value Unable to create ah.\n";
    let peer = "/w/nvshmem/src/modules/transport/ibgda/ibgda.cpp:nvshmemt_init:3626: neither nv_peer_mem, or nvidia_peermem detected. \
                Skipping transport.\n";
    let failed = "/w/src/host/init/init.cu:nvshmemi_check_state_and_init:1080: nvshmem initialization failed, exiting\n";
    check(failed, "nvshmem");
    check(&format!("{ibgda}{failed}"), "nvshmem");
    check(&format!("{peer}{failed}{CANCELLED}"), "nvshmem");
    check("NVSHMEM API called before NVSHMEM initialization has completed\n", "nvshmem");
    // Another transport was found.
    check(
        &format!(
            "{peer}{ibgda}WARN: device erdma_0 is not enumerated as an mlx5 device. Skipping...\n{STEPS}"
        ),
        "",
    );

    let timeout = "[rank5]:[E1101 11:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: \
                   WorkNCCL(SeqNum=3842, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n";
    let launch = "[rank3]: torch.AcceleratorError: CUDA error: unspecified launch failure\n";
    for said in [
        "[rank2]: RuntimeError: DeepEP error: timeout (dispatch CPU)",
        "[rank2]: RuntimeError: DeepEP error: CPU recv timeout",
        "DeepEP timeout for intranode dispatch receivers, rank 3, responsible_channel = 1, tokens remaining: 23",
        "DeepEP timeout check failed: rank = 6, thread = 5, value = 1024)",
        "DeepEP dispatch NVL receiver timeout, channel: 9, RDMA: 1, nvl: 3, src RDMA: 0, src nvl: 3, start: 0, end: 0",
        "DeepEP dispatch forwarder timeout (RDMA meta), channel: 4, RDMA: 1, nvl: 4",
        "DeepEP combine RDMA receiver timeout, channel: 1, RDMA: 0, nvl: 1",
    ] {
        for log in [
            format!("{said}\n{timeout}"),
            format!("{timeout}{said}\n"),
            format!("{said}\n{launch}"),
            format!("{launch}{said}\n"),
        ] {
            check(&log, "deepep-timeout");
        }
        // Why a rank did not come is nearer.
        let oom = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n";
        check(&format!("{said}\n{oom}"), "cuda-oom");
        // An access that is a kernel's own fault is no trap of DeepEP's.
        check(
            &format!(
                "{said}\n{}",
                launch.replace("unspecified launch failure", "an illegal memory access was encountered")
            ),
            "cuda-illegal-access",
        );
    }
    // Its numbers are not ranks of the run.
    assert_eq!(
        of("DeepEP timeout check failed: rank = 6, thread = 5, value = 1024)\n").verdicts[0].culprit.rank,
        None
    );
    check(
        "[rank5]: RuntimeError: Failed: Assertion error /x/csrc/deep_ep.cpp:629 'num_tokens_per_rdma_rank.has_value()'\n",
        "deepep-failed",
    );
    check(launch, "cuda-illegal-access");

    let te = "[rank2]: RuntimeError: /TE/common/comm_gemm_overlap/userbuffers/userbuffers-host.cpp:300 in function create: CUDA Error:";
    check(&format!("{te} invalid argument\n"), "te-userbuffers");
    check(&format!("{te} out of memory\n"), "cuda-oom");
    check(
        "!!! [UB] Create UbufP2PCommOverlap Communicator\nMC initialized succesfully, window size = 549755813888\n",
        "",
    );
}

#[test]
fn cudas_out_of_memory_is_known_in_every_librarys_words() {
    for said in [
        "RuntimeError: /w/TransformerEngine/transformer_engine/common/util/cuda_runtime.cpp:43 in function: CUDA Error: out of memory",
        "RuntimeError: /w/TransformerEngine/transformer_engine/common/gemm/cublaslt_gemm.cu:9 in f: cuBLAS Error: the resource allocation failed",
        "RuntimeError: Triton Error [CUDA]: out of memory",
        "RuntimeError: Failed: CUDA error /x/DeepEP/csrc/kernels/runtime.cu:20 'out of memory'",
        "RuntimeError: cuda runtime error (2) : out of memory at /x/THCGeneral.cpp:50",
    ] {
        check(
            &format!(
                "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"x.py\", line 1, in f\n[rank2]: {said}\n"
            ),
            "cuda-oom",
        );
    }
    for said in ["Cuda failure 'out of memory'", "Cuda failure 2 'out of memory'"] {
        check(
            &format!(
                "node1:123:456 [3] include/alloc.h:178 NCCL WARN {said}\n[rank3]: torch.distributed.DistBackendError: NCCL error in: \
                 x.cpp:1970, unhandled cuda error, NCCL version 2.20.5\n[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.\n"
            ),
            "cuda-oom",
        );
    }
    // Their other errors are what they were.
    check("[rank3]: RuntimeError: Triton Error [CUDA]: invalid argument\n", "compile-cache");
    check(
        "node1:123:456 [3] include/alloc.h:178 NCCL WARN Cuda failure 'invalid argument'\n",
        "nccl-cuda-error",
    );
}

#[test]
fn errors_are_told_from_those_that_read_alike() {
    for (log, cause) in [
        // A file that holds more than tensors, and one that is no checkpoint.
        (
            "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so\n",
            "checkpoint-weights-only",
        ),
        (
            "[rank0]: _pickle.UnpicklingError: Weights only load failed. Re-running `torch.load`. WeightsUnpickler error: Unsupported \
             global: GLOBAL numpy.core.multiarray.scalar\n",
            "checkpoint-weights-only",
        ),
        (
            "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed\nPlease file an issue: WeightsUnpickler error: \
             Unsupported operand 118\n",
            "checkpoint-missing",
        ),
        ("_pickle.UnpicklingError: invalid load key, 'v'.\n", "checkpoint-missing"),
        (
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n",
            "checkpoint-missing",
        ),
        // Another version that is loaded, and one that is too old.
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54\n",
            "driver-mismatch",
        ),
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown\n",
            "driver-mismatch",
        ),
        ("kernel: NVRM: API mismatch: the client has the version 515.48.07, but\n", "driver-mismatch"),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).\n",
            "cuda-driver-too-old",
        ),
        // A filesystem that nobody may write to, and a right that a user lacks.
        ("[rank0]: OSError: [Errno 30] Read-only file system: '/lustre/ckpt/iter_0000100'\n", "read-only"),
        ("mkdir: cannot create directory '/data/x': Read-only file system\n", "read-only"),
        ("[rank0]: PermissionError: [Errno 13] Permission denied: '/lustre/ckpt'\n", "permission"),
        // Any text that is no JSON, and the data of a training.
        ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n", "json-unreadable"),
        (
            "requests.exceptions.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n",
            "json-unreadable",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/a.idx'\n", "data-missing"),
        // What cuDNN has no kernel for, and what failed in it.
        (
            "[rank13]: RuntimeError: /TE/common/fused_attn/fused_attn_f16_arbitrary_seqlen.cu:227 in function operator(): cuDNN Error: \
             [cudnn_frontend] Error: No execution plans built successfully.. For more information, enable\n",
            "cudnn-no-plan",
        ),
        (
            "RuntimeError: cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.\n",
            "cudnn-no-plan",
        ),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n", "cublas"),
    ] {
        check(log, cause);
    }
    // A cache that a library does without.
    let cache = "WARNING:matplotlib: mkdir -p failed for path /home/user/.config/matplotlib: [Errno 30] Read-only file system: '/home/user/.config'\n";
    check(cache, "");
    check(&format!("{cache}{KEY}"), "python-exception");
}

#[test]
fn a_batch_script_that_fails_itself_is_found() {
    let at = "/var/spool/slurmd/job123/slurm_script";
    for said in [
        "line 12: syntax error near unexpected token `('",
        "line 40: syntax error: unexpected end of file",
        "line 12: unexpected EOF while looking for matching `\"'",
        "line 12: MASTER_PORT: unbound variable",
        "line 12: $1: unbound variable",
        "line 12: ${A-B}x}: bad substitution",
        "line 3: MASTER_ADDR: parameter null or not set",
        "12: MASTER_PORT: parameter not set",
        "7: Syntax error: \"(\" unexpected",
    ] {
        check(&format!("{at}: {said}\n"), "shell-script");
        // A script that training went on after is not what ended it.
        check(&format!("/etc/profile.d/x.sh: {said}\n{STEPS}{KEY}"), "python-exception");
        check(&format!("/etc/profile.d/x.sh: {said}\n{KEY}"), "python-exception");
        check(&format!("/etc/profile.d/x.sh: {said}\n{STEPS}[after training is done] x\n"), "");
    }
    check("train.sh: line 7: syntax error near unexpected token `fi'\n", "shell-script");
    check("SyntaxError: invalid syntax\n", "python-syntax");
}

#[test]
fn files_that_are_no_utf_8_text_say_what_to_do() {
    let text = "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered\n";
    let units = || text.encode_utf16();
    let little: Vec<u8> = [0xff, 0xfe].into_iter().chain(units().flat_map(u16::to_le_bytes)).collect();
    let big: Vec<u8> = [0xfe, 0xff].into_iter().chain(units().flat_map(u16::to_be_bytes)).collect();
    for (bytes, word) in [
        (little, "iconv -f UTF-16"),
        (big, "iconv -f UTF-16"),
        (vec![0x1f, 0x8b, 8, 0, 0], "zcat"),
        (vec![1, 0, 2], "is not text"),
    ] {
        for piece in [1, 2, 3, bytes.len()] {
            let mut diagnosis = Diagnosis::new(None);
            bytes.chunks(piece).for_each(|piece| diagnosis.feed(piece));
            let notes = diagnosis.finish().notes;
            assert!(notes.iter().any(|note| note.contains(word)), "{word}: {notes:?}");
        }
    }
}

#[test]
fn exit_codes_alone_say_how_a_process_ended() {
    let lines = |code: &str| {
        let mut lines = vec![
            format!("srun: error: n1: task 3: Exited with exit code {code}"),
            format!("srun: error: n1: tasks 0-7: Exited with exit code {code}"),
            format!(
                "[0]:\n  host      : n1\n  rank      : 11 (local_rank: 3)\n  exitcode  : {code} (pid: 4711)"
            ),
        ];
        if !code.starts_with('-') {
            lines.push(format!("Rank 3 exited with code {code}"));
            lines.push(format!("The command exited with code {code}"));
        }
        lines
    };
    // Of each code all that it is called in logs, by every launcher; which words the table has for a line is told before.
    for (codes, causes) in [
        (["15", "143", "-15"], ["terminated", "terminated", "terminated"]),
        (["9", "137", "-9"], ["killed", "exit-9", "exit-137"]),
        (["1", "1", "1"], ["exit-1", "exit-1", "exit-1"]),
    ] {
        for line in codes.iter().flat_map(|code| lines(code)) {
            let answer = of(&line);
            assert!(causes.contains(&first(&answer)), "{line}: {answer:?}");
            let meaning = &answer.verdicts[0].meaning;
            let word = [
                ("terminated", "SIGTERM"),
                ("killed", "137"),
                ("exit-9", "SIGKILL"),
                ("exit-137", "SIGKILL"),
            ];
            for (_, word) in word.iter().filter(|(cause, _)| *cause == first(&answer)) {
                assert!(meaning.contains(word), "{line}: {meaning}");
            }
        }
    }
    for line in ["srun: error: n1: task 3: Terminated", "The command was ended by signal 15 (SIGTERM)"] {
        check(line, "terminated");
    }
    // Who ended first stands before those that were told to, and a run that came to its end was ended by nobody.
    check(
        "srun: error: n1: task 3: Exited with exit code 15\nsrun: error: n1: task 4: Exited with exit code 2\n",
        "exit-2",
    );
    check(
        &format!(
            "{STEPS}[after training is done] datetime: x\nsrun: error: n1: task 3: Exited with exit code 15\n"
        ),
        "",
    );
}
