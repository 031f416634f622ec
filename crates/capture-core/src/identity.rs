//! Who a process is: its rank, the world and its place in the mesh, in the order of trust of docs/format.md. What is
//! not known stays unknown; it never becomes 0.

mod origin;

pub use origin::{Origin, process_id, run_name};

use crate::config::Warning;
use crate::mesh::{Mesh, MeshError};
use std::ffi::OsString;

/// What is known of a process's place in its job, and who said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Global rank; `None` is unknown.
    pub rank: Option<u32>,
    /// Number of ranks.
    pub world: Option<u32>,
    /// Place in the mesh.
    pub mesh: Mesh,
    /// `TPCAPTURE_RANK`, a framework such as `vllm`, the launcher's variable such as `RANK`, or `unknown`.
    pub from: String,
}

/// Rank and world size, in order of trust.
const LAUNCHERS: [(&str, &str); 4] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];
const NOT_USED: &str = "it is not used";
const RANK_UNKNOWN: &str = "the rank is unknown";

impl Who {
    /// A process of which nothing is known.
    #[must_use]
    pub fn unknown() -> Self {
        Self { rank: None, world: None, mesh: Mesh::default(), from: "unknown".to_owned() }
    }

    /// What the environment says, read through `get`, and what is wrong with it.
    ///
    /// A launcher's rank counts only with its world size, without which it may be left over from anything. A value
    /// that is set and wrong makes the rank unknown rather than handing the question on to a weaker source.
    pub fn from_env(get: impl Fn(&str) -> Option<OsString>) -> (Self, Vec<Warning>) {
        let mut env = Env { get, warnings: Vec::new() };
        let who = match env.text("TPCAPTURE_RANK") {
            Some(text) => env.own_rank(&text),
            None => match env.launcher() {
                Some((from, rank, world)) => env.placed(from, rank, world, None),
                None => {
                    env.check_mesh();
                    Self::unknown()
                }
            },
        };
        (who, env.warnings)
    }

    /// What a framework says of this process; asked where [`Self::is_certain`] is false. `TPCAPTURE_MESH`, read
    /// through `get`, has the say over `mesh` where it fits the world.
    pub fn from_framework(
        from: &str,
        rank: u32,
        world: u32,
        mesh: Option<Mesh>,
        get: impl Fn(&str) -> Option<OsString>,
    ) -> (Self, Vec<Warning>) {
        let mut env = Env { get, warnings: Vec::new() };
        let who = if rank < world {
            env.placed(from, rank, world, mesh)
        } else {
            env.warn(from, &rank.to_string(), format!("expected a rank below {world}"), RANK_UNKNOWN);
            Self::unknown()
        };
        (who, env.warnings)
    }

    /// Whether the user said who it is, so that no framework may say otherwise.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.from == "TPCAPTURE_RANK"
    }
}

/// The mesh where only the world is known. A process that is alone has none.
fn assumed(rank: u32, world: u32) -> Mesh {
    if world > 1 { Mesh::assumed_tp(rank, world) } else { Mesh::default() }
}

fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The product of the sizes.
fn n_places(mesh: &Mesh) -> Option<u32> {
    mesh.dims.iter().try_fold(1u32, |n, dim| n.checked_mul(dim.size))
}

struct Env<G> {
    get: G,
    warnings: Vec<Warning>,
}

impl<G: Fn(&str) -> Option<OsString>> Env<G> {
    /// A variable's text; an empty one counts as not set.
    fn text(&self, variable: &str) -> Option<String> {
        let text = (self.get)(variable)?.to_string_lossy().trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    fn warn(&mut self, variable: &str, value: &str, reason: String, outcome: &'static str) {
        let (variable, value) = (variable.to_owned(), value.to_owned());
        self.warnings.push(Warning { variable, value, reason, outcome });
    }

    /// The process whose rank is given as `text`, with `TPCAPTURE_MESH` beside it, or else with the world of the
    /// launcher, if that gives it the same rank.
    fn own_rank(&mut self, text: &str) -> Who {
        const VARIABLE: &str = "TPCAPTURE_RANK";
        let Some(rank) = number(text) else {
            self.warn(VARIABLE, text, "expected a global rank such as 3".to_owned(), RANK_UNKNOWN);
            return Who::unknown();
        };
        let who = |world, mesh| Who { rank: Some(rank), world, mesh, from: VARIABLE.to_owned() };
        let n_warnings = self.warnings.len();
        let launched = self.launcher().filter(|(_, other, _)| *other == rank);
        // What the launcher has wrong does not matter to a process that was told its rank.
        self.warnings.truncate(n_warnings);
        let alone = match launched {
            Some((_, _, world)) => who(Some(world), assumed(rank, world)),
            None => who(None, Mesh::default()),
        };
        let Some(sizes) = self.text("TPCAPTURE_MESH") else { return alone };
        match Mesh::from_sizes(&sizes, rank) {
            Ok(mesh) => who(n_places(&mesh), mesh),
            Err(error @ MeshError::Rank { .. }) => {
                self.warn("TPCAPTURE_MESH", &sizes, error.to_string(), RANK_UNKNOWN);
                Who::unknown()
            }
            Err(error) => {
                self.warn("TPCAPTURE_MESH", &sizes, error.to_string(), NOT_USED);
                alone
            }
        }
    }

    /// The first launcher that gives rank and world: its variable, rank and world. `None` where none does or where
    /// the first that does is wrong.
    fn launcher(&mut self) -> Option<(&'static str, u32, u32)> {
        for (variable, size_variable) in LAUNCHERS {
            if variable == "SLURM_PROCID" && slurm_step(|name| self.text(name)).is_none() {
                continue;
            }
            // A world size alone is common: scripts export it for programs that find their rank themselves.
            let Some(rank_text) = self.text(variable) else { continue };
            let Some(size_text) = self.text(size_variable) else {
                self.warn(variable, &rank_text, format!("expected {size_variable} beside it"), NOT_USED);
                continue;
            };
            let Some(rank) = number(&rank_text) else {
                self.warn(variable, &rank_text, "expected a rank such as 3".to_owned(), RANK_UNKNOWN);
                return None;
            };
            let Some(world) = number(&size_text).filter(|n| *n > 0) else {
                self.warn(size_variable, &size_text, "expected a number of ranks".to_owned(), RANK_UNKNOWN);
                return None;
            };
            if rank >= world {
                let reason = format!("expected a rank below {size_variable}={world}");
                self.warn(variable, &rank_text, reason, RANK_UNKNOWN);
                return None;
            }
            return Some((variable, rank, world));
        }
        None
    }

    /// A process whose rank and world are known: its mesh by `TPCAPTURE_MESH`, or as given, or assumed.
    fn placed(&mut self, from: &str, rank: u32, world: u32, mesh: Option<Mesh>) -> Who {
        let sized = self.text("TPCAPTURE_MESH").and_then(|sizes| {
            let found = Mesh::from_sizes(&sizes, rank).map_err(|error| error.to_string()).and_then(|mesh| {
                let fits = n_places(&mesh) == Some(world);
                if fits {
                    Ok(mesh)
                } else {
                    Err(format!("expected a mesh of {world} processes, as {from} says"))
                }
            });
            found.map_err(|reason| self.warn("TPCAPTURE_MESH", &sizes, reason, NOT_USED)).ok()
        });
        let mesh = sized.or(mesh).unwrap_or_else(|| assumed(rank, world));
        Who { rank: Some(rank), world: Some(world), mesh, from: from.to_owned() }
    }

    /// Warns of sizes that can be wrong only; whom they fit shows when a framework gives the rank.
    fn check_mesh(&mut self) {
        if let Some(sizes) = self.text("TPCAPTURE_MESH")
            && let Err(error) = Mesh::from_sizes(&sizes, 0)
        {
            self.warn("TPCAPTURE_MESH", &sizes, error.to_string(), NOT_USED);
        }
    }
}

/// Job and step of a process that srun started. The batch script and an interactive shell of a job carry the job's
/// variables too, rank 0 among them, but are none of its tasks: they have no step, or one of the highest numbers,
/// which Slurm reserves for them.
fn slurm_step(text: impl Fn(&str) -> Option<String>) -> Option<(String, u32)> {
    const FIRST_RESERVED: u32 = 0xffff_fff0;
    let step = text("SLURM_STEP_ID").or_else(|| text("SLURM_STEPID"))?;
    let step = number(&step).filter(|step| *step < FIRST_RESERVED)?;
    Some((text("SLURM_JOB_ID").or_else(|| text("SLURM_JOBID"))?, step))
}

#[cfg(test)]
mod tests;
