use super::*;

#[test]
fn facts_do_not_contradict_each_other() {
    for runtime in Runtime::ALL {
        let facts = runtime.facts();
        let name = runtime.name();
        // Units are of shards, and shards of a mesh's ranks.
        assert!(facts.shards_parameters || !facts.flat_units, "{name}");
        assert!(facts.uses_device_mesh || !facts.shards_parameters, "{name}");
        assert!(facts.uses_device_mesh || !facts.experts_within_replica && !facts.groups_as_needed, "{name}");
        // Rows of a vocabulary are padded where a rank keeps its part whole.
        assert!(!(facts.pads_vocabulary && facts.shards_parameters), "{name}");
        assert!(!(facts.low_precision_by_torchao && facts.trains_megatron_core), "{name}");
        assert!(facts.reduced_replicas != ReducedReplicas::None || !facts.cores_keep_rows, "{name}");
        for formula in runtime.origins().formulas {
            assert!(!formula.of.is_empty() && !formula.formula.is_empty() && !formula.source.is_empty());
        }
    }
    let own = Runtime::ALL.into_iter().filter(|runtime| runtime.facts().is_workers_own);
    assert_eq!(own.collect::<Vec<_>>(), [Runtime::OF_WORKER]);
}

#[test]
fn a_setting_that_nobody_reads_or_counts_is_no_setting() {
    let all = Runtime::ALL.map(Runtime::facts);
    for readers in all.iter().flat_map(|facts| facts.lacks) {
        assert!(all.iter().any(|facts| facts.reads(*readers)), "{readers:?}");
    }
    for counted in all.iter().flat_map(|facts| facts.not_counted) {
        assert!(all.iter().any(|facts| facts.counts(*counted)), "{counted:?}");
    }
}
