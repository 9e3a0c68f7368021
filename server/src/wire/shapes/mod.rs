//! The objects of the wire, as its clients read them. Field by field as the wire's own description has them; nothing here
//! knows what they are made from.

mod event;
mod facts;
mod message;
mod part;
mod session;

pub(crate) use event::{Envelope, WireEvent};
pub(crate) use facts::{
    Agent, AgentModel, Capabilities, Command, FileContent, FileNode, FileStatus, FoundText, Limit, Model,
    ModelApi, ModelCache, ModelCost, ModelTier, Path, Project, Provider, Reads, Submatch, Text, Tier,
    ToolListItem, Vcs, VcsChange,
};
pub(crate) use message::{
    AssistantMessage, AssistantTime, CacheTokens, Created, Message, MessageModel, MessageWithParts, Roots,
    Tokens, TurnSummary, UserMessage, WireError,
};
pub(crate) use part::{FileSource, Part, PartHead, PartTime, Span, Start, StepTokens, ToolState};
pub(crate) use session::{
    FileDiff, GlobalSession, PermissionRequest, ProjectSummary, QuestionRequest, Session, SessionChanges,
    SessionModel, SessionRevert, SessionTime, SessionTokens, Status, ToolOf,
};
