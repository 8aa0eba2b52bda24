from lockstep.agents.run import command_line

command_line.main("ppo")
