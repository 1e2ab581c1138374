// The parts of Apache ECharts that the report draws with; everything else stays out of the page.
import { use, init } from 'echarts/core';
import { HeatmapChart, LineChart, ScatterChart } from 'echarts/charts';
import {
  GridComponent,
  LegendComponent,
  TooltipComponent,
  VisualMapContinuousComponent,
} from 'echarts/components';
import { SVGRenderer } from 'echarts/renderers';

use([
  HeatmapChart, LineChart, ScatterChart, GridComponent, LegendComponent,
  TooltipComponent, VisualMapContinuousComponent, SVGRenderer,
]);

export { init };
