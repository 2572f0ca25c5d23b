//! The command `store`, built where the tests can find it.

fn main() -> std::process::ExitCode {
    if std::env::var_os("STORE_TESTS_PORTIONS").is_some_and(|portions| portions == "small") {
        store::Portions::small_everywhere();
    }
    cli::main()
}
