//! Spawns the real binary in a fresh folder with an environment of its own.

#![allow(dead_code)] // every test file uses its part

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What a finished process left.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A folder, an environment and an input.
pub struct Program {
    folder: tempfile::TempDir,
    env: Vec<(String, String)>,
    input: Vec<u8>,
}

impl Program {
    pub fn new() -> Program {
        Program { folder: tempfile::tempdir().unwrap(), env: Vec::new(), input: Vec::new() }
    }

    pub fn env(mut self, name: &str, value: &str) -> Program {
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn input(mut self, bytes: &[u8]) -> Program {
        self.input = bytes.into();
        self
    }

    /// Writes a file into the folder.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The command, with pipes on all streams.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hipfire"));
        command.args(args).current_dir(self.path()).env_clear().env("HOME", self.path().join("home"));
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts it and writes the input.
    pub fn start(&self, args: &[&str]) -> Child {
        let mut child = self.command(args).spawn().unwrap();
        // The program may end without reading.
        let _ = child.stdin.take().unwrap().write_all(&self.input);
        child
    }

    pub fn run(&self, args: &[&str]) -> Outcome {
        finish(self.start(args))
    }
}

pub fn finish(child: Child) -> Outcome {
    let output = child.wait_with_output().unwrap();
    Outcome {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
