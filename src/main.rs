//! The program. Everything is in the library: `cli` is the table of contents.

fn main() -> std::process::ExitCode {
    hipfire::cli::main(std::env::args_os().collect())
}
