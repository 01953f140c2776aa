//! Parts that every view is made of: one table, one place to drop files in.

mod cell;
mod drop_zone;
mod pager;
mod sheet;
mod table;

pub use cell::{Column, Line, Lines};
pub use drop_zone::{DropZone, FileButton};
pub use pager::rows_of_page;
pub use sheet::Sheet;
pub use table::{Order, ROWS, Table};
