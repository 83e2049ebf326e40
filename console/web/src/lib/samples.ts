/** Two tools to begin with: the examples of the guide. */
import type { CustomTool } from './types';

export const samples: CustomTool[] = [
  {
    name: 'get_user_daily_limit',
    description_agent: '특정 사용자의 일일 제한량을 조회합니다. Returns how many tool calls a user may make in a day.',
    description_user: 'Sample: joins users and their limits.',
    tool_type: 'SQL',
    source: 'sample',
    definition: "SELECT u.user_nm, l.max_count\nFROM h_user u\nJOIN h_mcp_tool_limit l ON u.uid = l.target_id\nWHERE u.user_nm = :user_name AND l.target_type = 'USER'",
    is_active: true,
    params: [{ param_name: 'user_name', param_type: 'STRING', is_required: true, description: 'Name of the user, such as hong' }],
  },
  {
    name: 'multiply_numbers',
    description_agent: '두 숫자를 입력받아 곱한 결과를 반환합니다. Multiplies two numbers.',
    description_user: 'Sample: an expression.',
    tool_type: 'PYTHON',
    source: null,
    definition: 'num1 * num2',
    is_active: true,
    params: [
      { param_name: 'num1', param_type: 'NUMBER', is_required: true, description: 'First factor' },
      { param_name: 'num2', param_type: 'NUMBER', is_required: true, description: 'Second factor' },
    ],
  },
];
