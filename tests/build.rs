//! Links what the tests start at a fixed address: a process that relocates nothing at its start has half of the page faults.

fn main() {
    println!("cargo::rustc-link-arg=-no-pie");
    println!("cargo::rerun-if-changed=build.rs");
}
