//! Steps for an interactive allocation, to be pasted one after the other.

use super::frame::{prepare, run, surroundings};
use super::header::Component;
use super::payload::Payload;
use super::site::Container;
use super::writer::Writer;

/// The steps.
pub fn steps(writer: &mut Writer<'_>, payload: &Payload) -> String {
    let mut out = request(writer);
    out.push_str(&surroundings(writer, payload));
    out.push_str(&prepare(writer, payload));
    out.push_str(&look_around(writer));
    out.push_str("\n# Step 4: run\n");
    out.push_str(run(writer, payload).trim_start());
    out
}

/// The request for nodes, and what has to be there in the shell that it opens.
pub fn request(writer: &mut Writer<'_>) -> String {
    let mut out = String::from("#!/bin/bash\n");
    out.push_str(&writer.comments("Paste these steps into a shell on a login node, one after the other"));
    out.push_str("\n# Step 1: ask for nodes. A shell opens when they are there\nsalloc");
    let mut options = vec![format!("--job-name={}", writer.job_name())];
    let nodes = Component::of(writer.plan.cluster.nodes);
    options.extend(writer.component(&nodes));
    for option in options {
        out.push_str(&format!(" \\\n  {}", for_shell(&option)));
    }
    out.push_str(
        "\n\n# Step 2: in that shell\n\
         : \"${SLURM_JOB_ID:?paste the steps from here on into the shell that salloc opened}\"\n",
    );
    out
}

/// An option for the shell: a placeholder would be read as a redirection.
fn for_shell(option: &str) -> String {
    if option.contains(['<', '>']) { format!("'{option}'") } else { option.to_owned() }
}

/// A shell beside the ranks, where they will run.
fn look_around(writer: &mut Writer<'_>) -> String {
    let mpi = writer.mpi();
    let flags = writer.container_flags(&[]);
    let prefix = writer.container_prefix();
    let place = match writer.container() {
        Some(Container::Pyxis | Container::Apptainer) => "in the container on the first node",
        _ => "on the first node",
    };
    format!(
        "\n# Step 3, if you like: a shell {place}, to look around. Leave it by exit\n\
         srun {mpi}--overlap -N 1 --relative=0 --ntasks=1 --ntasks-per-node=1 --pty \\\n{flags}{prefix}  bash\n"
    )
}
