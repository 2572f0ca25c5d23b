//! The command `store`, built where the tests can find it.

fn main() -> std::process::ExitCode {
    cli::main()
}
