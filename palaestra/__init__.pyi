"""The public interface: each name, and where it lies."""

# ruff: noqa: I001
# fmt: off

# What a user calls
from .api.asking import compare as compare, evaluate as evaluate, explain as explain
from .api.run import RecordedGroup as RecordedGroup, Run as Run, open as open
from .api.training import train as train
from .run.trust import trust as trust
from .catalogue import recipe as recipe
from .values import override as override, vary as vary
from .card import Card as Card, Size as Size

# The nouns, and what a stage is given
from .types import (
    SOLVED_TOTAL as SOLVED_TOTAL,
    Act as Act,
    Ask as Ask,
    Batch as Batch,
    Call as Call,
    ChatRequest as ChatRequest,
    Choices as Choices,
    Completion as Completion,
    Dialect as Dialect,
    Episode as Episode,
    Event as Event,
    Example as Example,
    Frame as Frame,
    Group as Group,
    Groups as Groups,
    Key as Key,
    Malformed as Malformed,
    Message as Message,
    Meter as Meter,
    Objective as Objective,
    Origin as Origin,
    Outputs as Outputs,
    Player as Player,
    Reply as Reply,
    Result as Result,
    Reward as Reward,
    Row as Row,
    Sampling as Sampling,
    Segment as Segment,
    Signals as Signals,
    State as State,
    Task as Task,
    Tasks as Tasks,
    ToolSchema as ToolSchema,
    View as View,
    World as World,
    payment as payment,
    rng_of as rng_of,
    seed_of as seed_of,
    stage as stage,
    value_class as value_class,
)
from .context import (
    Bench as Bench,
    Client as Client,
    Collect as Collect,
    Context as Context,
    Credit as Credit,
    Draw as Draw,
    Engine as Engine,
    Observe as Observe,
    RewardFn as RewardFn,
    Runnable as Runnable,
    Source as Source,
    Update as Update,
)
from .declared import declare as declare
from .errors import (
    Fatal as Fatal,
    Fault as Fault,
    PalaestraError as PalaestraError,
    Paused as Paused,
    Stopped as Stopped,
    UserError as UserError,
)
from .pictures import PICTURE_MARK as PICTURE_MARK, Picture as Picture
from .schedule import (
    Cosine as Cosine,
    Exponential as Exponential,
    Jump as Jump,
    Linear as Linear,
    Sigmoid as Sigmoid,
    Staircase as Staircase,
    check_bounds as check_bounds,
)

# A method
from .method import Learner as Learner, Recipe as Recipe, Unchanged as Unchanged
from .rollout.queue import Schedule as Schedule
from .pipeline import Output as Output, Part as Part, Pipeline as Pipeline, warm as warm
from .beginnings import imitate_first as imitate_first
from .update import AdamW as AdamW, Cycle as Cycle, Plain as Plain


# Which problems
from .curriculum.difficulty import pass_rates as pass_rates
from .curriculum.pool import Mixed as Mixed, Shuffled as Shuffled
from .curriculum.replay import Replay as Replay

# Attempts
from .rollout.budget import Instead as Instead
from .rollout.collect import (
    none_right as none_right,
    Sample as Sample,
    Score as Score,
    When as When,
    judge_group as judge_group,
    links as links,
)
from .rollout.guide import Hide as Hide, Under as Under
from .rollout.hints import Feedback as Feedback, Hinted as Hinted, Working as Working
from .rollout.recorded import (
    Demonstrate as Demonstrate,
    Offline as Offline,
    Recorded as Recorded,
    recorded_episode as recorded_episode,
)
from .services.chat.endpoint import Endpoint as Endpoint
from .services.chat.local import LocalModel as LocalModel
from .services.chat.scripted import Scripted as Scripted

# Rewards
from .rewards.labels import Beside as Beside, Labels as Labels
from .rewards.learned import Learned as Learned
from .rewards.rewritten import Rewritten as Rewritten
from .rewards.verified import Verified as Verified
from .rewards.verify import Verify as Verify, response_text as response_text
from .rewards.where import Where as Where
from .judges.pairwise import Pairwise as Pairwise
from .judges.pointwise import Judge as Judge
from .verifiers.answers.short import stated_answer as stated_answer

# Credit
from .credit.advantages import group_mean as group_mean
from .credit.gae import Gae as Gae
from .credit.labelled import Labelled as Labelled
from .credit.links import (
    Center as Center,
    Chain as Chain,
    Fact as Fact,
    Link as Link,
    Scale as Scale,
    chain as chain,
)
from .credit.preferences import Compare as Compare, Rate as Rate
from .credit.scopes import Stratum as Stratum
from .credit.table import Table as Table, Values as Values

# Losses
from .objective.algebra import Algebra as Algebra, reduce_terms as reduce_terms, token_mean as token_mean
from .objective.policy import Clipped as Clipped, Imitation as Imitation, Reinforce as Reinforce
from .objective.preference import DPO as DPO
from .objective.reward_model import BradleyTerry as BradleyTerry, Regression as Regression
from .objective.shaped import Shaped as Shaped
from .objective.subset import On as On
from .objective.terms import KL as KL, Entropy as Entropy, ValueLoss as ValueLoss
from .objective.tokens import DualClipped as DualClipped
from .objective.track import Track as Track

# Weights that are merged or adapted, and what reads and steers a model
from .models.inside.cursor import Cursor as Cursor



# Claims, and what watches a run
from .scale.cluster import Cluster as Cluster

# What fewer methods need, by room
from . import (
    abilities as abilities,
    chat as chat,
    control as control,
    credit as credit,
    curriculum as curriculum,
    ends as ends,
    engines as engines,
    games as games,
    judges as judges,
    ledger as ledger,
    mixing as mixing,
    models as models,
    needs as needs,
    objective as objective,
    planning as planning,
    privacy as privacy,
    rewards as rewards,
    rollout as rollout,
    run as run,
    scale as scale,
    search as search,
    services as services,
    studies as studies,
    stats as stats,
    tasks as tasks,
    toys as toys,
    trackers as trackers,
    verifiers as verifiers,
    worlds as worlds,
)

__version__: str
