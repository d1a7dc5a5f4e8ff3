//! The environment variable that caps the processor's level, of a program that embeds Millstream.

use std::process::Command;

use millstream::Session;

const VARIABLE: &str = "MILLSTREAM_CPU";

/// The variable is this process's only in a child: the test starts this program again.
#[test]
fn a_wrong_level_of_the_processor_is_an_error() {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "AVX9") {
        let refused = Session::new(".").submit("SELECT n FROM (VALUES (1)) AS t (n)");
        let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(text, "MILLSTREAM_CPU is 'AVX9'\n  help: the values are portable, avx2, avx512");
        return;
    }
    let name = "processor::a_wrong_level_of_the_processor_is_an_error";
    let program = std::env::current_exe().expect("a path of this program");
    let child = Command::new(program).args(["--exact", name]).env(VARIABLE, "AVX9").output();
    let output = child.expect("a child");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
