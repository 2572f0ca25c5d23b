//! Files of this host: atomic writes, opening of regular files only, memory maps.

mod atomic;
mod mmap;
mod stamps;

pub use atomic::open_regular;
pub(crate) use atomic::{
    build_atomically, is_host_local, open_object, read_regular, stat_regular, write_atomically,
};
pub(crate) use mmap::map;
pub(crate) use stamps::stamps;
