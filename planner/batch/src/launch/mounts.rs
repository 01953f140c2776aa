//! What of the nodes a container sees: the mounts that are given or follow from the site's paths, and paths that no mount
//! covers.

use super::checks::{clipped, is_under};

use super::site::Container;
use super::writer::Writer;
use planner::finding::Finding;

/// A path that tasks read or write.
struct Needed<'a> {
    /// Its field of the site.
    field: &'static str,
    /// The path.
    path: &'a str,
    /// Whether a folder has to be mounted for it that is not the path itself: that of a file, or of files with its name as
    /// their beginning.
    is_file: bool,
    /// Whether the batch script writes there under the same name.
    is_written: bool,
}

impl<'a> Needed<'a> {
    /// The folder that has to be mounted.
    fn folder(&self) -> &'a str {
        match self.path.rsplit_once('/').filter(|_| self.is_file) {
            Some(("", _)) | None => self.path,
            Some((folder, _)) => folder,
        }
    }

    fn is_covered(&self, mount: &str) -> bool {
        let mut parts = mount.split(':');
        let (source, target) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        is_under(self.path, target) && (source == target || !self.is_written)
    }
}

impl Writer<'_> {
    /// The container's mounts, as a word of the shell.
    pub(super) fn mounts(&mut self) -> String {
        for mount in &self.site.mounts {
            let mut parts = mount.split(':');
            let source = parts.next().unwrap_or("");
            let target = parts.next().unwrap_or("");
            let known = source.starts_with(['/', '.']) || ["tmpfs", "umount"].contains(&source);
            if !known || !target.starts_with('/') || parts.count() > 1 || mount.contains(',') {
                self.refuse("mounts", mount, "is not source:target[:flags] with absolute paths");
            }
        }
        let mut mounts: Vec<String> =
            self.site.mounts.iter().filter(|mount| !mount.is_empty()).cloned().collect();
        if mounts.is_empty() {
            mounts = self.usual_mounts();
        }
        if let Some(profile) = self.site.profile {
            for mount in profile.mounts(self.site) {
                if !mounts.contains(&mount) {
                    mounts.push(mount);
                }
            }
        }
        self.check_mounts(&mounts);
        self.shell("mounts", Some(&mounts.join(",")), None, "<MOUNTS>")
    }

    /// The shared folder, what the site's paths need besides, and a checkout where the image is known to have none.
    fn usual_mounts(&mut self) -> Vec<String> {
        let shared = self.site.shared_dir.clone().filter(|shared| !shared.is_empty());
        let shared = shared.unwrap_or_else(|| "<SHARED_DIR>".to_owned());
        let mut mounts = vec![format!("{shared}:{shared}")];
        let paths: Vec<(&'static str, String)> = self
            .needed()
            .iter()
            .filter(|needed| !self.site_profile_covers(needed))
            .map(|needed| (needed.field, needed.folder().to_owned()))
            .collect();
        for (field, folder) in paths.into_iter().chain([("shared_dir", shared)]) {
            if folder.contains([':', ',']) {
                let why = format!(
                    "is not given, and {field} can't be mounted by its own name: it holds a : or a ,"
                );
                self.refuse("mounts", &folder, &why);
            } else if !mounts.iter().any(|mount| is_under(&folder, mount.split(':').next().unwrap_or(""))) {
                mounts.push(format!("{folder}:{folder}"));
            }
        }
        if let Some(folder) = self.lacks_code() {
            let checkout = format!(
                "<CHECKOUT_OF_{}>",
                folder.trim_start_matches("/opt/").to_uppercase().replace('-', "_")
            );
            self.missing("mounts", &checkout);
            mounts.push(format!("{checkout}:{folder}"));
        }
        mounts
    }

    fn site_profile_covers(&self, needed: &Needed<'_>) -> bool {
        let mounts = self.site.profile.map(|profile| profile.mounts(self.site));
        mounts.is_some_and(|mounts| mounts.iter().any(|mount| needed.is_covered(mount)))
    }

    /// Where the body's code has to be mounted: in its own images it lies there, and this one is known to have none.
    fn lacks_code(&self) -> Option<&'static str> {
        let folder = self.options.body.facts().code.filter(|_| self.site.workdir.is_none())?;
        self.code_in_image().is_none().then_some(folder)
    }

    /// Paths of the site that tasks use, and no image has.
    fn needed(&self) -> Vec<Needed<'_>> {
        let site = self.site;
        let code = self.code_in_image();
        [
            ("shared_dir", &site.shared_dir, false, true),
            ("hf_home", &site.hf_home, false, true),
            ("uv_cache_dir", &site.uv_cache_dir, false, true),
            ("nemo_home", &site.nemo_home, false, true),
            ("workdir", &site.workdir, false, false),
            ("megatron_lm", &site.megatron_lm, false, false),
            ("data_path", &site.data_path, true, false),
            ("pretrained", &site.pretrained, false, false),
            ("tokenizer", &site.tokenizer, false, false),
            ("hf_model", &site.hf_model, false, false),
            ("config", &site.config, true, false),
            ("titan_config", &site.titan_config, true, false),
            ("rank_binary", &site.rank_binary, true, false),
            ("torch_lib", &site.torch_lib, false, false),
        ]
        .into_iter()
        .filter(|(field, ..)| self.uses(field))
        .filter_map(|(field, path, is_file, is_written)| {
            let path = path.as_deref().filter(|path| path.starts_with('/'))?;
            let in_image = code.is_some_and(|code| is_under(path, code));
            (!in_image).then_some(Needed { field, path, is_file, is_written })
        })
        .collect()
    }

    /// Whether what is run uses a path of the site.
    fn uses(&self, field: &str) -> bool {
        self.options.body.facts().uses(field, self.options.task)
    }

    /// Says of each path that no mount covers that tasks do not see it.
    fn check_mounts(&mut self, mounts: &[String]) {
        if !matches!(self.container(), Some(Container::Pyxis | Container::Apptainer)) {
            return;
        }
        let needed = self.needed();
        let hidden: Vec<(&'static str, String, bool)> = needed
            .iter()
            .filter(|needed| !mounts.iter().any(|mount| needed.is_covered(mount)))
            .map(|needed| (needed.field, needed.path.to_owned(), needed.is_written))
            .collect();
        for (field, path, is_written) in hidden {
            let message = match (field, is_written) {
                ("shared_dir", _) => "shared_dir is not mounted by its own name, so what the run saves there would be lost with the \
                                      container: add shared_dir:shared_dir"
                    .to_owned(),
                (_, true) => format!(
                    "{field} is not mounted by its own name, so what lies there would be lost with the container: add {0}:{0}",
                    clipped(&path)
                ),
                (_, false) => {
                    format!("{field} is not mounted, so tasks in the container do not find {}", clipped(&path))
                }
            };
            let rule = "a job's paths are seen in its container, and its folder outlives it";
            self.note(Finding::warning("site.mounts", clipped(&path), message).rule(rule));
        }
        if let Some(folder) = self.lacks_code()
            && !mounts
                .iter()
                .any(|mount| mount.split(':').nth(1).is_some_and(|target| is_under(folder, target)))
        {
            let message = format!("no mount has a checkout at {folder}, and the image has none");
            self.note(Finding::warning("site.mounts", folder, message));
        }
    }
}
