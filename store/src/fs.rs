//! Files of this host: written whole or not at all, opened only where they are regular, mapped.

mod atomic;
mod mmap;

pub(crate) use atomic::{
    build_atomically, is_host_local, open_regular, read_regular, stat_regular, write_atomically,
};
pub(crate) use mmap::map;
