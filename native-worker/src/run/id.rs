//! Names of new runs.

use anyhow::Context;

/// A new run's id: the time in UTC, so that names sort by start, and something random.
///
/// # Errors
/// When the system gives no random bytes.
pub fn new_id() -> anyhow::Result<String> {
    let mut random = [0u8; 3];
    getrandom::fill(&mut random).context("the system gives no random bytes")?;
    let now = jiff::Timestamp::now();
    Ok(format!(
        "{}-{:03}-{}",
        now.strftime("%Y%m%dT%H%M%SZ"),
        now.as_millisecond().rem_euclid(1000),
        hex::encode(random)
    ))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_new_name_is_a_runs() {
        assert!(run_folder::is_id(&super::new_id().expect("an id")));
    }
}
