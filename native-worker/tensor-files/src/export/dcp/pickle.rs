//! Python's pickle, protocol 2: the few things that torch's files have in it.

use std::collections::BTreeMap;

/// A pickle that is being written.
pub(super) struct Pickle {
    bytes: Vec<u8>,
    /// Classes and functions that were named, which need not be named again.
    known: BTreeMap<(&'static str, &'static str), u32>,
}

impl Pickle {
    pub(super) fn new() -> Pickle {
        Pickle { bytes: vec![0x80, 2], known: BTreeMap::new() }
    }

    /// All of it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    /// A class or function of a module.
    pub(super) fn global(&mut self, module: &'static str, name: &'static str) -> &mut Pickle {
        if let Some(place) = self.known.get(&(module, name)) {
            // LONG_BINGET
            self.bytes.push(b'j');
            self.bytes.extend(place.to_le_bytes());
            return self;
        }
        let place = self.known.len() as u32;
        self.known.insert((module, name), place);
        self.bytes.extend(format!("c{module}\n{name}\n").as_bytes());
        // LONG_BINPUT
        self.bytes.push(b'r');
        self.bytes.extend(place.to_le_bytes());
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Pickle {
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Pickle {
        if let Ok(number) = i32::try_from(number) {
            self.bytes.push(b'J');
            self.bytes.extend(number.to_le_bytes());
        } else {
            // LONG1: the ninth byte keeps it from being negative.
            self.bytes.extend([0x8a, 9]);
            self.bytes.extend(number.to_le_bytes());
            self.bytes.push(0);
        }
        self
    }

    pub(super) fn no(&mut self) -> &mut Pickle {
        self.put(0x89)
    }

    pub(super) fn nothing(&mut self) -> &mut Pickle {
        self.put(b'N')
    }

    /// A tuple of what is written.
    pub(super) fn tuple(&mut self, write: impl FnOnce(&mut Pickle)) -> &mut Pickle {
        self.put(b'(');
        write(self);
        self.put(b't')
    }

    pub(super) fn numbers(&mut self, numbers: &[u64]) -> &mut Pickle {
        self.tuple(|pickle| {
            for number in numbers {
                pickle.number(*number);
            }
        })
    }

    /// A list of what is written.
    pub(super) fn list(&mut self, write: impl FnOnce(&mut Pickle)) -> &mut Pickle {
        self.put(b']').put(b'(');
        write(self);
        self.put(b'e')
    }

    /// A dictionary of what is written: a key, its value, and so on.
    pub(super) fn dictionary(&mut self, write: impl FnOnce(&mut Pickle)) -> &mut Pickle {
        self.put(b'}').put(b'(');
        write(self);
        self.put(b'u')
    }

    /// Calls the function that is written first with the tuple that is written then.
    pub(super) fn call(&mut self) -> &mut Pickle {
        self.put(b'R')
    }

    /// Gives a tuple to whoever loads this, who knows by it what stands here.
    pub(super) fn persistent(&mut self) -> &mut Pickle {
        self.put(b'Q')
    }

    /// An object of a class, which has these attributes: a name, its value, and so on.
    pub(super) fn object(
        &mut self,
        module: &'static str,
        class: &'static str,
        write: impl FnOnce(&mut Pickle),
    ) -> &mut Pickle {
        self.begun(module, class).dictionary(write).state()
    }

    /// An object of a class without anything; behind it stands what [`Pickle::state`] gives it.
    pub(super) fn begun(&mut self, module: &'static str, class: &'static str) -> &mut Pickle {
        self.global(module, class).put(b')').put(0x81)
    }

    /// Gives an object what is written behind it.
    pub(super) fn state(&mut self) -> &mut Pickle {
        self.put(b'b')
    }

    fn put(&mut self, code: u8) -> &mut Pickle {
        self.bytes.push(code);
        self
    }
}
