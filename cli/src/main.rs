//! The command `store`.

fn main() -> std::process::ExitCode {
    cli::main()
}
