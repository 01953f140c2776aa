//! What of a prediction an option changes, or why none of it.

/// What follows from an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// What follows from its field.
    OfField,
    /// Bytes of a GPU: which.
    Bytes(&'static str),
    /// None of a GPU's bytes: why.
    None(&'static str),
    /// Bytes that are not computed: what is counted in their place. A job with it is said to differ.
    NotCounted(&'static str),
    /// A job that is no plan: why. It is refused.
    Refused(&'static str),
}

impl Effect {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Effect::OfField | Effect::Bytes(_) => "counted",
            Effect::None(_) => "no bytes",
            Effect::NotCounted(_) => "not counted",
            Effect::Refused(_) => "refused",
        }
    }

    /// How, or why.
    pub const fn why(self) -> &'static str {
        match self {
            Effect::OfField => "",
            Effect::Bytes(why) | Effect::None(why) | Effect::NotCounted(why) | Effect::Refused(why) => why,
        }
    }
}

/// Options of which no field is made, and on which no byte depends.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Why.
    pub why: &'static str,
    /// Whether what is trained may come out otherwise with them.
    pub trains: bool,
    /// Their names; one that ends in a star stands for all that begin so.
    pub names: &'static [&'static str],
}

impl Family {
    /// Whether an option is one of them.
    pub fn has(&self, option: &str) -> bool {
        self.names.iter().any(|name| match name.strip_suffix('*') {
            Some(beginning) => option.starts_with(beginning),
            None => *name == option,
        })
    }
}
