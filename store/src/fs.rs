//! Files of this host: atomic writes, opening of regular files only, memory maps, free space.

mod atomic;
mod free;
mod mmap;
mod stamps;

pub(crate) use atomic::{
    build_atomically, is_host_local, open_object, regular_at, write_atomically,
};
pub use atomic::{open_regular, open_regular_with, read_regular, write_note};
pub use free::free_bytes;
pub(crate) use free::free_bytes_at;
pub(crate) use mmap::map;
pub(crate) use stamps::stamps;
