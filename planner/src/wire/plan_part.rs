//! Declaring a part of a plan file: what the file has, the rows of its fields, and what a plan has of it.

use std::ops::Range;

use crate::json::by_field::ByField;
use crate::settings::{ForRow, OfRow, Precision, Usual};
use crate::units::Dtype;
use crate::wire::setting::{MOST_WORDS, Setting};

/// Who fills what a part of a plan file leaves open, and says what its rows have against what it says.
pub(crate) trait Fill {
    /// One field: what a rule says, or else what its row says is usual, where the file says nothing.
    fn field<T: OfRow>(&mut self, row: &'static Setting, said: &mut Option<T>, rule: Option<&T>);
}

/// A part of a plan file that a plan has a value of.
pub(crate) trait Filling: ByField {
    /// Has the field with this place among them filled, if a plan has it; `rules` has what follows from the rest of the plan where
    /// nothing is said.
    fn fill_field(&mut self, rules: &Self, place: usize, by: &mut impl Fill);

    /// The place of a field; behind all of them for what is none.
    fn place(name: &str) -> usize {
        Self::FIELDS.iter().position(|known| *known == name).unwrap_or(Self::FIELDS.len())
    }

    /// The places of a field and of all behind it.
    fn places_from(name: &str) -> Range<usize> {
        Self::place(name)..Self::FIELDS.len()
    }
}

/// What a plan has where its file has an `F`.
pub(crate) trait OfFile<F> {
    /// Has what is open filled.
    fn fill(file: &mut F, rules: &F, rows: &'static [Setting], by: &mut impl Fill);

    /// What a filled file says, or the nearest that its rows take.
    fn read(file: &F, rules: &F, rows: &'static [Setting]) -> Self;
}

/// What is always filled.
impl<T: OfRow> OfFile<Option<T>> for T {
    fn fill(file: &mut Option<T>, rules: &Option<T>, rows: &'static [Setting], by: &mut impl Fill) {
        Option::<T>::fill(file, rules, rows, by);
    }

    fn read(file: &Option<T>, rules: &Option<T>, rows: &'static [Setting]) -> T {
        Option::<T>::read(file, rules, rows).unwrap_or_else(|| T::of(Usual::Nothing))
    }
}

/// What stays open where nobody says it.
impl<T: OfRow> OfFile<Option<T>> for Option<T> {
    fn fill(file: &mut Option<T>, rules: &Option<T>, rows: &'static [Setting], by: &mut impl Fill) {
        if let [row] = rows {
            by.field(row, file, rules.as_ref());
        }
    }

    fn read(file: &Option<T>, rules: &Option<T>, rows: &'static [Setting]) -> Option<T> {
        let (said, [row]) = (file.as_ref()?, rows) else { return file.clone() };
        Some(match said.said() {
            ForRow::Type(name) if !row.words().contains(&name) => {
                rules.clone().unwrap_or_else(|| said.clone())
            }
            ForRow::Words(_) => said.at_most(MOST_WORDS),
            number => row.nearest(number).map_or_else(|| said.clone(), T::of),
        })
    }
}

/// What is not quantized is computed in the type of a precision.
impl OfFile<Option<Precision>> for Dtype {
    fn fill(
        file: &mut Option<Precision>,
        rules: &Option<Precision>,
        rows: &'static [Setting],
        by: &mut impl Fill,
    ) {
        Precision::fill(file, rules, rows, by);
    }

    fn read(file: &Option<Precision>, rules: &Option<Precision>, rows: &'static [Setting]) -> Dtype {
        Precision::read(file, rules, rows).dtype()
    }
}

/// Declares a part of a plan file, each of its fields with its row: what it is, `=`, and what it takes. A field without one is a part
/// of its own.
///
/// `in "SECTION.", each with a default;` has it read field by field (`json/by_field.rs`).
///
/// `filled as pub struct VALUE { .. } of` also makes what a plan has of it: the fields that say `as` what they are there, and those
/// in the braces, each of which is made of the filled file by a function.
macro_rules! plan_part {
    (
        in $section:literal, each with a default;
        filled as
        $(#[$of_value:meta])*
        $scope:vis struct $value:ident {
            $(
                $(#[doc = $about_made:literal])+
                pub $made:ident: $made_type:ty = $make:expr,
            )*
        }
        of
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $about:literal])+
                $(#[serde($($serde:tt)*)])?
                pub $field:ident: $type:ty $(as $filled:ty)? $(= $row:expr)?,
            )*
        }
    ) => {
        $crate::wire::plan_part::plan_part! {
            in $section, each with a default;
            $(#[$attribute])*
            pub struct $name {
                $(
                    $(#[doc = $about])+
                    $(#[serde($($serde)*)])?
                    pub $field: $type $(= $row)?,
                )*
            }
        }

        $crate::wire::plan_part::value! {
            { $(#[$of_value])* $scope struct $value }
            { $($(#[doc = $about_made])+ pub $made: $made_type,)* }
            $({ $(#[doc = $about])+ } $field $(as $filled)?;)*
        }

        const _: () = {
            /// Places of its fields.
            #[allow(non_camel_case_types, dead_code)]
            enum Place { $($field),* }

            impl $crate::wire::plan_part::Filling for $name {
                #[inline(never)]
                fn fill_field(
                    &mut self,
                    rules: &Self,
                    place: usize,
                    by: &mut impl $crate::wire::plan_part::Fill,
                ) {
                    $($(
                        if place == Place::$field as usize {
                            let rows = $name::ROWS[Place::$field as usize];
                            <$filled as $crate::wire::plan_part::OfFile<$type>>::fill(
                                &mut self.$field, &rules.$field, rows, by,
                            );
                        }
                    )?)*
                }
            }

            impl $crate::wire::plan_part::OfFile<$name> for $value {
                fn fill(
                    file: &mut $name,
                    rules: &$name,
                    _: &'static [$crate::wire::Setting],
                    by: &mut impl $crate::wire::plan_part::Fill,
                ) {
                    use $crate::{json::by_field::ByField, wire::plan_part::Filling};
                    for place in 0..$name::FIELDS.len() {
                        file.fill_field(rules, place, by);
                    }
                }

                fn read(file: &$name, rules: &$name, _: &'static [$crate::wire::Setting]) -> $value {
                    $value {
                        $($made: { let make: fn(&$name) -> $made_type = $make; make(file) },)*
                        $($(
                            $field: <$filled as $crate::wire::plan_part::OfFile<$type>>::read(
                                &file.$field, &rules.$field, $name::ROWS[Place::$field as usize],
                            ),
                        )?)*
                    }
                }
            }
        };
    };
    (
        in $section:literal, each with a default;
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $about:literal])+
                $(#[serde($($serde:tt)*)])?
                pub $field:ident: $type:ty $(= $row:expr)?,
            )*
        }
    ) => {
        $crate::wire::plan_part::plan_part! {
            in $section;
            $(#[$attribute])*
            pub struct $name {
                $(
                    $(#[doc = $about])+
                    $(#[serde($($serde)*)])?
                    pub $field: $type $(= $row)?,
                )*
            }
        }

        $crate::json::by_field::by_field! { $name { $($field),* } }
    };
    (
        in $section:literal;
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $about:literal])+
                $(#[serde($($serde:tt)*)])?
                pub $field:ident: $type:ty $(= $row:expr)?,
            )*
        }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $(
                $(#[doc = $about])+
                $(#[serde($($serde)*)])?
                pub $field: $type,
            )*
        }

        impl $name {
            pub(super) const ROWS: $crate::wire::setting::Rows = &[
                $($crate::wire::plan_part::row!(
                    concat!($section, stringify!($field)), concat!($($about),+) $(, $row)?
                ),)*
            ];
        }
    };
}

/// The rows of one field: none or one.
macro_rules! row {
    ($path:expr, $about:expr) => {
        &[]
    };
    ($path:expr, $about:expr, $row:expr) => {
        &[$row.placed($path, $about)]
    };
}

/// The struct of a part's value: its head, what it has so far, and fields of the file, of which those are in it that say as what.
macro_rules! value {
    ({ $($head:tt)* } { $($made:tt)* }) => {
        $($head)* { $($made)* }
    };
    ({ $($head:tt)* } { $($made:tt)* } { $($about:tt)* } $field:ident; $($rest:tt)*) => {
        $crate::wire::plan_part::value! { { $($head)* } { $($made)* } $($rest)* }
    };
    ({ $($head:tt)* } { $($made:tt)* } { $($about:tt)* } $field:ident as $filled:ty; $($rest:tt)*) => {
        $crate::wire::plan_part::value! { { $($head)* } { $($made)* $($about)* pub $field: $filled, } $($rest)* }
    };
}

pub(super) use {plan_part, row, value};
