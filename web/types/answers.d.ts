/** What the API answers, by the names of its description (api.d.ts is made of that by `make lint-console`). */
import type { components } from "./api.js";

type Schemas = components["schemas"];

export type Me = Schemas["Me"];
export type Role = Me["role"];
export type FieldProblem = Schemas["FieldProblem"];
export type Line = Schemas["OverviewAnswer"];
export type Pipeline = Schemas["PipelineAnswer"];
export type State = Schemas["StateAnswer"];
export type StateName = State["name"];
export type Revision = Schemas["RevisionAnswer"];
export type Run = Schemas["RunAnswer"];
export type Figures = Schemas["FiguresAnswer"];
export type Stage = Schemas["StageAnswer"];
export type Partition = Schemas["PartitionAnswer"];
export type PipelineEvent = Schemas["EventAnswer"];
export type Ways = Schemas["WaysAnswer"];
export type Way = Schemas["Way"];
export type Operation = Schemas["OperationAnswer"];
export type User = Schemas["UserAnswer"];
export type Token = Schemas["TokenAnswer"];
export type Deed = Schemas["DeedAnswer"];
export type Leader = Schemas["LeaderAnswer"];
export type Load = Schemas["LoadAnswer"];
export type LakeVersion = Schemas["LakeVersionAnswer"];
export type WatermarkStage = Schemas["WatermarkAnswer"];
export type Verification = Schemas["VerificationAnswer"];
export type Schedule = Schemas["ScheduleAnswer"];
export type Alert = Schemas["AlertAnswer"];
export type Rule = Schemas["RuleAnswer"];
export type Channel = Schemas["ChannelAnswer"];
export type Silence = Schemas["SilenceAnswer"];
export type Notice = Schemas["NoticeAnswer"];
