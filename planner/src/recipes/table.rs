//! Tables of what a framework's recipes set by model, GPU, count and precision, and which line of one is nearest to a plan.

use std::cmp::Ordering;

use super::{Among, Recomputed, Wanted, number};
use crate::settings::{CudaGraphs, Dispatcher};

/// A model of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model<'a> {
    /// Its name in the catalogue.
    pub(super) preset: &'a str,
    /// Layers, hidden size and routed experts.
    pub(super) sizes: [u64; 3],
    /// What all its recipes of a precision set, `precision:what` each.
    own: &'a str,
}

/// A line: a model on a number of GPUs in some precisions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// The model.
    pub(super) model: Model<'a>,
    gpu: &'a str,
    world: u64,
    precisions: &'a str,
    /// What is set, one word or one for each release that changed it.
    pub(super) settings: &'a str,
}

/// The lines of a table.
pub(super) fn read(text: &'static str) -> Vec<Line<'static>> {
    let (mut model, mut lines) = (None, Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("= ") {
            Some(named) => model = Model::read(named),
            None => lines.extend(model.and_then(|model| Line::read(model, line))),
        }
    }
    lines
}

impl<'a> Model<'a> {
    fn read(named: &'a str) -> Option<Model<'a>> {
        let mut words = named.splitn(5, ' ');
        let preset = words.next()?;
        let mut size = || words.next().and_then(|word| word.parse().ok());
        let sizes = [size()?, size()?, size()?];
        Some(Model { preset, sizes, own: words.next().unwrap_or_default() })
    }

    /// What all its recipes of a precision set, without the precision.
    pub(super) fn of(&self, precision: &str) -> impl Iterator<Item = &'a str> {
        let words = self.own.split(' ');
        words.filter_map(move |word| word.strip_prefix(precision).and_then(|what| what.strip_prefix(':')))
    }
}

/// The line of a table nearest to what is wanted, among those that are looked through, and how far it is: in model, GPU, precision, number
/// of GPUs.
pub(super) fn nearest<'a>(
    lines: impl Iterator<Item = Line<'a>>,
    wanted: &Wanted<'_>,
) -> Option<(Line<'a>, [f64; 4])> {
    let looked_through = |line: &Line<'_>| {
        wanted.among == Among::All || line.gpu_apart(wanted) > 0.0 || line.model_apart(wanted) > 0.0
    };
    let mut nearest = None;
    for line in lines.filter(looked_through) {
        let far = line.nearer(wanted, nearest.as_ref().map(|(_, far)| far));
        nearest = far.map(|far| (line, far)).or(nearest);
    }
    nearest
}

/// How many times as large one number is as another, as a logarithm.
fn apart(one: u64, other: u64) -> f64 {
    libm::log(one.max(1) as f64 / other.max(1) as f64).abs()
}

impl<'a> Line<'a> {
    fn read(model: Model<'a>, line: &'a str) -> Option<Line<'a>> {
        let mut words = line.splitn(4, ' ');
        Some(Line {
            model,
            gpu: words.next()?,
            world: words.next()?.parse().ok()?,
            precisions: words.next()?,
            settings: words.next()?,
        })
    }

    /// What it is made for, in words.
    pub(super) fn name(&self, wanted: &Wanted<'_>) -> String {
        let precision = named(self.precision(wanted.precision).0);
        format!("{} on {} {}, {precision}", self.model.preset, self.world, self.gpu)
    }

    /// How far it is from what is wanted, the most telling first: model, GPU, precision, number of GPUs. Nothing where it is no nearer
    /// than what is known, which most lines are not by their first number.
    fn nearer(&self, wanted: &Wanted<'_>, known: Option<&[f64; 4]>) -> Option<[f64; 4]> {
        const FAR: [fn(&Line<'_>, &Wanted<'_>) -> f64; 4] = [
            |line, wanted| line.model_apart(wanted),
            |line, wanted| line.gpu_apart(wanted),
            |line, wanted| line.precision(wanted.precision).1,
            |line, wanted| apart(line.world, wanted.world),
        ];
        let (mut found, mut undecided) = ([0.0; 4], known);
        for (place, far) in FAR.into_iter().enumerate() {
            found[place] = far(self, wanted);
            match undecided.map(|known| found[place].total_cmp(&known[place])) {
                Some(Ordering::Greater) => return None,
                Some(Ordering::Less) => undecided = None,
                _ => {}
            }
        }
        undecided.is_none().then_some(found)
    }

    pub(super) fn model_apart(&self, wanted: &Wanted<'_>) -> f64 {
        if wanted.preset == Some(self.model.preset) {
            return -1.0;
        }
        let [layers, hidden, experts] = self.model.sizes;
        let kind = if (experts > 0) == (wanted.sizes[2] > 0) { 0.0 } else { 100.0 };
        kind + apart(layers, wanted.sizes[0])
            + apart(hidden, wanted.sizes[1])
            + apart(experts, wanted.sizes[2])
    }

    fn gpu_apart(&self, wanted: &Wanted<'_>) -> f64 {
        match self.gpu == wanted.gpu {
            true => 0.0,
            false if self.is_blackwell() != wanted.blackwell => 3.0,
            false if self.is_superchip() != wanted.superchip => 2.0,
            false => 1.0,
        }
    }

    /// Whether the GPU stands on a board with a Grace CPU, in a domain of 72: its recipes have dispatcher, graphs and what waits on the host
    /// in common with the other such GPU's rather than with those of boards of eight.
    fn is_superchip(&self) -> bool {
        self.gpu.starts_with('g')
    }

    pub(super) fn is_blackwell(&self) -> bool {
        self.gpu.contains('b')
    }

    /// Its precision nearest to one, and how far that is: another of 8 or 4 bits before 16 bits.
    pub(super) fn precision(&self, wanted: &str) -> (&'static str, f64) {
        let names = ["bf16", "cs", "sc", "mx", "nv"];
        let has = |name: &&str| self.precisions.split(',').any(|one| one == *name);
        let far = |name: &str| -> f64 {
            match () {
                () if name == wanted => 0.0,
                () if (name == "bf16") == (wanted == "bf16") => 1.0,
                () => 2.0,
            }
        };
        let known = names.into_iter().filter(has).map(|name| (name, far(name)));
        known.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or(("bf16", 2.0))
    }

    /// The settings of a release: of the last change that is not later.
    fn of(&self, release: u32) -> &'a str {
        let mut found = "";
        for word in self.settings.split(' ') {
            let dated =
                word.split_once(':').filter(|(since, _)| since.starts_with(|c: char| c.is_ascii_digit()));
            match dated {
                None => found = word,
                Some((since, settings)) if number(since) <= release => found = settings,
                Some(_) => {}
            }
        }
        found
    }
}

/// What a line sets at a release: letters, the first of them graphs, and behind a colon what is computed again or waits on the host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings<'a> {
    letters: &'a str,
    behind: &'a str,
}

/// What stands before the number of layers whose activations wait on the host.
const ON_HOST: &str = "offload";

/// What stands before the number of a stage's first layers that are computed again.
const BLOCK: &str = "block";

impl<'a> Line<'a> {
    /// What it sets at a release.
    pub(super) fn settings_of(&self, release: u32) -> Settings<'a> {
        let of = self.of(release);
        let (letters, behind) = of.split_once(':').unwrap_or((of, ""));
        Settings { letters, behind }
    }
}

impl Settings<'_> {
    /// Whether a letter is there that is not the first.
    pub(super) fn has(&self, letter: char) -> bool {
        self.letters.chars().skip(1).any(|one| one == letter)
    }

    /// CUDA graphs: none, of parts, of a whole step.
    pub(super) fn graphs(&self) -> CudaGraphs {
        match self.letters.chars().next() {
            Some('s') => CudaGraphs::Scoped,
            Some('i') => CudaGraphs::Iteration,
            _ => CudaGraphs::None,
        }
    }

    /// How tokens get to experts, where there are some.
    pub(super) fn dispatcher(&self, experts: bool) -> Option<Dispatcher> {
        let named = if self.has('f') { Dispatcher::Flex } else { Dispatcher::AllToAll };
        experts.then_some(named)
    }

    /// What is computed again.
    pub(super) fn recomputed(&self) -> Recomputed {
        match self.behind {
            "full" => Recomputed::Full,
            _ if self.behind.is_empty() || self.offloaded().is_some() => Recomputed::Nothing,
            behind => match number_after(behind, BLOCK) {
                Some(layers) => Recomputed::Block(layers),
                None => Recomputed::Modules(behind.split('+').map(str::to_owned).collect()),
            },
        }
    }

    /// Layers whose activations wait on the host.
    pub(super) fn offloaded(&self) -> Option<u64> {
        number_after(self.behind, ON_HOST)
    }
}

fn number_after(text: &str, before: &str) -> Option<u64> {
    text.strip_prefix(before)?.parse().ok()
}

/// A precision as plan files name it.
fn named(precision: &str) -> &'static str {
    match precision {
        "cs" => "fp8_current",
        "sc" => "fp8_blockwise",
        "mx" => "mxfp8",
        "nv" => "nvfp4",
        _ => "bf16",
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::data::{File, text};
    use crate::model::presets;

    #[test]
    fn sizes_are_those_of_the_catalogue() {
        let lines = |file| read(text(file)).into_iter();
        // NeMo has recipes for models that the catalogue has not.
        let known = |id: &str| presets().iter().any(|preset| preset.id == id);
        let of_nemo = lines(File::Nemo).filter(|line| known(line.model.preset));
        for line in lines(File::Releases).chain(lines(File::Automodel)).chain(of_nemo) {
            let preset = presets().iter().find(|preset| preset.id == line.model.preset).unwrap();
            let (model, _) = preset.model().unwrap();
            let experts = model.moe.as_ref().map_or(0, |moe| moe.experts);
            assert_eq!(line.model.sizes, [model.num_layers, model.hidden_size, experts], "{}", preset.id);
        }
    }
}
