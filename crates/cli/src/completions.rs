//! `millstream completions`: what a shell needs to complete the program's arguments, out of the
//! definitions that they are parsed by. The numbers of jobs come from `millstream jobs`.

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::print;

/// Adds the jobs to what `why` and `stop` may be given.
const BASH: &str = r#"
_millstream_and_jobs() {
    _millstream "$@"
    local word="${COMP_WORDS[COMP_CWORD]}"
    if [[ ${COMP_CWORD} -ge 2 && "${COMP_WORDS[1]}" =~ ^(why|stop)$ && "${word}" != -* ]]; then
        COMPREPLY+=( $(compgen -W "$("$1" jobs 2>/dev/null | sed -n 's/^\([0-9][0-9]*\).*/\1/p')" -- "${word}") )
    fi
}
complete -F _millstream_and_jobs -o bashdefault -o default millstream
"#;

const ZSH: &str = r#"
_millstream_jobs() {
    local -a jobs
    jobs=("${(@f)$(millstream jobs 2>/dev/null | sed -n 's/^\([0-9][0-9]*\)  */\1:/p')}")
    _describe -t jobs job jobs
}
"#;

const FISH: &str = r"
function __millstream_jobs
    millstream jobs 2>/dev/null | string replace -rf '^([0-9]+) +' '$1\t'
end
complete -c millstream -n '__fish_seen_subcommand_from why stop' -f -a '(__millstream_jobs)'
";

/// Writes them.
pub(crate) fn run(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    generate(shell, &mut with_values(Arguments::command()), "millstream", &mut text);
    print(&with_jobs(shell, String::from_utf8_lossy(&text).into_owned()))
}

/// Adds possible values of arguments for which the program itself suggests similar names.
fn with_values(command: Command) -> Command {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<String> = shown.map(|command| command.get_name().to_string()).collect();
    // Definitions have names that live as long as the program, which ends after this.
    let values = |names: Vec<String>| {
        let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
        PossibleValuesParser::new(names)
    };
    command
        .mut_subcommand("man", |man| man.mut_arg("command", |arg| arg.value_parser(values(names))))
}

fn with_jobs(shell: Shell, text: String) -> String {
    match shell {
        Shell::Bash => text + BASH,
        Shell::Fish => text + FISH,
        Shell::Zsh => {
            // Before the function that is called when the file is loaded.
            let text = text.replacen("\n_millstream() {", &format!("{ZSH}\n_millstream() {{"), 1);
            let lines =
                text.split_inclusive('\n').map(|line| match line.starts_with("'::job -- ") {
                    true => line.replace(":_default'", ":_millstream_jobs'"),
                    false => line.to_string(),
                });
            lines.collect()
        }
        _ => text,
    }
}
