use super::{Environment, Variables, derive};

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn found(pairs: &[(&str, &str)]) -> Environment {
    derive(&variables(pairs)).unwrap()
}

#[track_caller]
fn check_port(job: &str, port: u16) {
    let environment = found(&[("SLURM_NTASKS", "16"), ("SLURM_PROCID", "3"), ("SLURM_JOB_ID", job)]);
    assert_eq!(environment.master_port, port, "job {job}");
}

#[test]
fn slurm_jobs_get_a_port_from_their_number() {
    check_port("123456", 18456);
    check_port("999", 15999);
    check_port("12345678", 20678);
    check_port("job-0042", 15042);
}

#[test]
fn jobs_without_a_number_at_the_end_get_the_usual_port_and_a_warning() {
    for job in ["12_x", "array.7", "+123", "12 34", "j\u{f6}b1", "\u{f6}\u{f6}"] {
        let set = [
            ("SLURM_NTASKS", "1"),
            ("SLURM_JOB_NODELIST", "n1"),
            ("SLURM_PROCID", "0"),
            ("SLURM_JOB_ID", job),
        ];
        let environment = found(&set);
        assert_eq!(environment.master_port, 29500, "{job}");
        let expected = ["MASTER_PORT is not set, and SLURM_JOB_ID does not end in digits; taking 29500"];
        assert_eq!(environment.warnings, expected, "{job}");
        let told = found(&[&set[..], &[("MASTER_PORT", "4000")]].concat());
        assert_eq!((told.master_port, told.warnings.len()), (4000, 0), "{job}");
    }
}

#[test]
fn slurm_variables_are_used_in_a_slurm_job() {
    let environment = found(&[
        ("SLURM_NTASKS", "16"),
        ("SLURM_PROCID", "9"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODELIST", "node[001-002]"),
        ("SLURM_JOB_NODELIST", "other"),
        ("SLURM_JOB_ID", "123456"),
    ]);
    assert_eq!((environment.rank, environment.world_size, environment.local_rank), (9, 16, 1));
    assert_eq!((environment.master_addr.as_str(), environment.master_port), ("node001", 18456));
    assert_eq!(environment.job, "123456");
    assert!(environment.warnings.is_empty(), "{:?}", environment.warnings);
}

#[test]
fn the_job_node_list_serves_where_the_other_is_absent() {
    let environment = found(&[("SLURM_NTASKS", "1"), ("SLURM_JOB_NODELIST", "nodeA,nodeB[001,003]")]);
    assert_eq!(environment.master_addr, "nodeA");
}

#[test]
fn plain_variables_win_over_slurms() {
    let environment = found(&[
        ("SLURM_NTASKS", "16"),
        ("SLURM_PROCID", "9"),
        ("SLURM_JOB_ID", "123456"),
        ("RANK", "1"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "10.0.0.1"),
        ("MASTER_PORT", "4000"),
    ]);
    assert_eq!((environment.rank, environment.world_size, environment.local_rank), (1, 4, 1));
    assert_eq!((environment.master_addr.as_str(), environment.master_port), ("10.0.0.1", 4000));
}

#[test]
fn without_slurm_and_variables_there_is_one_rank_and_a_warning_for_each_guess() {
    let environment = found(&[]);
    assert_eq!((environment.rank, environment.world_size), (0, 1));
    assert_eq!((environment.master_addr.as_str(), environment.master_port), ("localhost", 29500));
    let expected = [
        "RANK is not set, and neither is SLURM_PROCID; taking 0",
        "WORLD_SIZE is not set, and neither is SLURM_NTASKS; taking 1",
        "MASTER_ADDR is not set, and neither is SLURM_NODELIST or SLURM_JOB_NODELIST; taking localhost",
        "MASTER_PORT is not set, and neither is SLURM_JOB_ID; taking 29500",
    ];
    assert_eq!(environment.warnings, expected);
    let listless = found(&[("SLURM_NTASKS", "1"), ("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "999")]);
    assert_eq!(listless.master_addr, "localhost");
    assert_eq!(listless.warnings.len(), 1, "{:?}", listless.warnings);
}

#[test]
fn in_a_batch_script_there_is_one_rank_and_nothing_is_said_to_be_missing_that_is_set() {
    for tasks in [None, Some(("SLURM_NTASKS", " "))] {
        let mut pairs = vec![
            ("SLURM_PROCID", "0"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_JOB_ID", "123456"),
            ("SLURM_JOB_NODELIST", "node[001-002]"),
        ];
        pairs.extend(tasks);
        let environment = found(&pairs);
        assert_eq!((environment.rank, environment.world_size), (0, 1));
        assert_eq!((environment.master_addr.as_str(), environment.master_port), ("localhost", 29500));
        let expected = [
            "WORLD_SIZE is not set, and neither is SLURM_NTASKS; taking 1",
            "MASTER_ADDR is not set, and SLURM_JOB_NODELIST does not count without SLURM_NTASKS; taking localhost",
            "MASTER_PORT is not set, and SLURM_JOB_ID does not count without SLURM_NTASKS; taking 29500",
        ];
        assert_eq!(environment.warnings, expected);
    }
}

#[test]
fn one_of_several_tasks_does_not_train_alone() {
    let unknown = "but neither WORLD_SIZE nor SLURM_NTASKS says how many";
    check_error(&[("SLURM_PROCID", "7"), ("SLURM_JOB_ID", "123456")], unknown);
    check_error(&[("SLURM_PROCID", "1"), ("RANK", "0")], unknown);
    check_error(&[("SLURM_LOCALID", "2")], "SLURM_LOCALID is 2");
    check_error(&[("SLURM_PROCID", "first")], "SLURM_PROCID is \"first\"");
    check_error(&[("SLURM_PROCID", "4"), ("WORLD_SIZE", "4")], "RANK is 4 but WORLD_SIZE is 4");
    let told = found(&[("SLURM_PROCID", "3"), ("WORLD_SIZE", "4")]);
    assert_eq!((told.rank, told.world_size), (3, 4));
}

#[test]
fn restarts_are_counted_as_attempts() {
    let slurm = ("SLURM_NTASKS", "1");
    assert_eq!(found(&[slurm]).attempt, 1);
    assert_eq!(found(&[slurm, ("SLURM_RESTART_COUNT", "2")]).attempt, 3);
    assert_eq!(found(&[("TORCHELASTIC_RESTART_COUNT", "1")]).attempt, 2);
    check_error(&[slurm, ("SLURM_RESTART_COUNT", "twice")], "SLURM_RESTART_COUNT is \"twice\"");
}

#[test]
fn torchruns_own_store_keeps_its_port() {
    let pairs = [("MASTER_PORT", "29500"), ("TORCHELASTIC_USE_AGENT_STORE", "True")];
    assert_eq!(found(&pairs).master_port, 29501);
}

#[track_caller]
fn check_error(pairs: &[(&str, &str)], expected: &str) {
    let error = derive(&variables(pairs)).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn malformed_values_are_named() {
    check_error(&[("RANK", "one")], "RANK is \"one\"");
    check_error(&[("RANK", "4"), ("WORLD_SIZE", "4")], "RANK is 4 but WORLD_SIZE is 4");
    check_error(&[("MASTER_PORT", "70000")], "MASTER_PORT is \"70000\"");
    check_error(&[("SLURM_NTASKS", "1"), ("SLURM_NODELIST", "[")], "node list \"[\"");
}
